// Ground: a conversation as the server keeps it, in the shapes that the page shows.

import { pause } from "./pause.js";
import { request } from "./server.js";
import { t } from "./texts.js";

const WATCH = 2000; // ms between two looks at what is written elsewhere
/** How answers ended of which no more is known. @type {Record<string, Parameters<typeof t>[0]>} */
const FAILURES = {
  model_unreachable: "modelUnreachable", model_failed: "modelFailed", model_context: "modelContext", shutdown: "interrupted",
  interrupted: "interrupted",
};

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
  return request("GET", `v1/conversations/${encodeURIComponent(id)}?${query}`, undefined, { signal, read: withExactNumbers });
}

/** Numbers are written again as they are here, also those that would be rounded: what was run is to be seen. @param {string} json */
function withExactNumbers(json) {
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

/**
 * An answer in the events that would tell it now; its texts are whole.
 * @param {any} message
 * @returns {import("../answer/following.js").TurnEvent[]}
 */
export function eventsOf(message) {
  return [
    event("turn_start", { model: message.model }),
    ...message.parts.map(eventOf),
    ...(message.usage ? [event("usage", message.usage)] : []),
    ...(message.state === "running" ? [] : [ending(message)]),
  ];
}

/**
 * @param {string} name
 * @param {object} data
 * @param {string} [raw] of a call, whose parameters are shown as they are written
 */
function event(name, data, raw = "") {
  return { name, data, raw };
}

/** @param {any} part */
function eventOf(part) {
  const { type, ...data } = part;
  if (type === "text") return event("token", { ...data, whole: true });
  if (type === "steered") return event("notice", { ...data, code: type });
  if (type !== "call") return event(type, data);
  const { params, outcome } = part, raw = JSON.stringify({ params });
  return outcome ? event("specialist_error", { ...data, code: outcome }, raw) : event("specialist_result", data, raw);
}

/** @param {any} answer */
function ending({ id, state, stop_reason, error, message, recoverable = true, total_ms }) {
  if (state === "complete" || state === "cancelled") {
    return event("done", { stop_reason: stop_reason ?? state, message_id: id, text: "", total_ms });
  }
  return event("error", { code: error ?? state, message: message ?? t(FAILURES[error ?? state] ?? "internal"), recoverable });
}

/** @param {{ parts: any[] }} message */
export function textOf({ parts }) {
  return parts.filter(({ type }) => type === "text").map(({ text }) => text).join("");
}
