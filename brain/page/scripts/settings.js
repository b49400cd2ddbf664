// Room: what a person set up.

/** @param {import("./types.js").Start} start */
export function startSettings(start) {}
