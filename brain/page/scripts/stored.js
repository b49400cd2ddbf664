// Ground: a conversation as the server keeps it, in the shapes that the page shows.

import { pause } from "./pause.js";
import { request } from "./server.js";

const WATCH = 2000; // ms between two looks at what is written elsewhere

/**
 * @typedef {import("./types.js").Attached} Attached
 * @typedef {{ question: any, answer: any }} Pair
 */

/**
 * @param {string} id
 * @param {string} query
 * @param {AbortSignal} signal
 */
export function stored(id, query, signal) {
  return request("GET", `v1/conversations/${encodeURIComponent(id)}?${query}`, undefined, signal, exactly);
}

/** Numbers are written again as they are here, also those that would be rounded: what was run is to be seen. @param {string} json */
function exactly(json) {
  const { parse, rawJSON } = /** @type {any} */ (JSON); // those of ES2023 know no source
  return parse(json, (/** @type {string} */ _, /** @type {any} */ value, /** @type {{ source?: string }} */ at) => {
    return typeof value === "number" && rawJSON && at.source !== String(value) ? rawJSON(at.source) : value;
  });
}

/**
 * Waits until nothing is written in it any more, where that can only be read when it is whole.
 * @param {string} id
 * @param {AbortSignal} signal
 */
export async function settled(id, signal) {
  for (;;) {
    await pause(WATCH, signal);
    const found = await stored(id, "limit=1", signal).catch(() => null);
    if (found && !found.running) return;
  }
}

/**
 * Its questions with their answers, oldest first.
 * @param {{ messages: any[] }} found
 * @returns {Pair[]}
 */
export function pairs({ messages }) {
  return messages.filter(({ role }) => role === "user").map((question) => ({ question, answer: messages[messages.indexOf(question) + 1] }));
}

/**
 * What was attached to a question.
 * @param {any} found the conversation
 * @param {any} question
 * @returns {Attached[]}
 */
export function filesOf(found, question) {
  /** @type {Map<number, any>} */
  const files = new Map(found.files.map((/** @type {any} */ file) => [file.id, file]));
  return question.files.flatMap((/** @type {number} */ id) => {
    const file = files.get(id);
    return file ? [{ ...file, file: null, preview: `v1/conversations/${encodeURIComponent(found.id)}/files/${id}` }] : [];
  });
}

/** @param {{ parts: any[] }} message */
export function textOf({ parts }) {
  return parts.filter(({ type }) => type === "text").map(({ text }) => text).join("");
}
