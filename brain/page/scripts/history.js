// Room: the list of conversations.

/** @param {import("./types.js").Start} start */
export function startHistory(start) {}
