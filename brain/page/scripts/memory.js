// Room: what is remembered of a person.

/** @param {import("./types.js").Start} start */
export function startMemory(start) {}
