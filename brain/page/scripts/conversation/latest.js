// The newest messages on the server, where other tabs and devices may continue the conversation.

import { fetchConversation, pairMessages } from "../base/stored_conversation.js";

/** @typedef {import("../base/types.js").StoredConversation} StoredConversation */

/**
 * The messages after an answer.
 * @param {string} id
 * @param {string} last the id of that answer
 * @param {AbortSignal} signal
 * @returns {Promise<{ found: StoredConversation, news: "none" | "one" | "more" } | null>}
 */
export async function fetchNewer(id, last, signal) {
  const found = await fetchConversation(id, "limit=2", signal).catch(() => null);
  if (!found || signal.aborted) return null;
  const [before, newest] = [undefined, ...pairMessages(found)].slice(-2);
  return { found, news: newest?.answer.id === last ? "none" : before?.answer.id === last ? "one" : "more" };
}

/**
 * The conversation and its last answer, or null if they cannot be loaded.
 * @param {string | null} id
 * @param {number} limit number of messages with their answers
 * @param {AbortSignal} signal
 * @returns {Promise<{ found: StoredConversation, answer: import("../base/types.js").StoredAnswer | undefined } | null>}
 */
export async function fetchLatest(id, limit, signal) {
  const found = await fetchConversation(id ?? "", `limit=${limit}`, signal).catch(() => null);
  return found && { found, answer: pairMessages(found).at(-1)?.answer };
}
