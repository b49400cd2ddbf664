// Room: where a message is written.

/** @param {import("./types.js").Start} start */
export function startComposer(start) {}
