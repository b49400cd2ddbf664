// Room: signing in with a key, when the server asks for one.

/** Takes the server's questions for a key from now on. */
export function startSigningIn() {}
