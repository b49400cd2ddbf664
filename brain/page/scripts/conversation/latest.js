// Conversation: how one stands in the server now, where other tabs and machines go on with it, too.

import { pairs, stored } from "../ground/stored.js";

/** @typedef {import("../ground/types.js").Kept} Kept */

/**
 * What came behind an answer.
 * @param {string} id
 * @param {string} last the id of that answer
 * @param {AbortSignal} signal
 * @returns {Promise<{ found: Kept, news: "none" | "one" | "more" } | null>} null when nobody can say
 */
export async function newer(id, last, signal) {
  const found = await stored(id, "limit=2", signal).catch(() => null);
  if (!found || signal.aborted) return null;
  const [before, newest] = [undefined, ...pairs(found)].slice(-2);
  return { found, news: newest?.answer.id === last ? "none" : before?.answer.id === last ? "one" : "more" };
}

/**
 * The conversation, and its last answer, if that can be had.
 * @param {string | null} id
 * @param {number} limit how many questions with their answers
 * @param {AbortSignal} signal
 * @returns {Promise<{ found: Kept, answer: import("../ground/types.js").KeptAnswer | undefined } | null>}
 */
export async function latest(id, limit, signal) {
  const found = await stored(id ?? "", `limit=${limit}`, signal).catch(() => null);
  return found && { found, answer: pairs(found).at(-1)?.answer };
}
