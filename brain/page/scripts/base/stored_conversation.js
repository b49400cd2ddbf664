// Stored conversations, converted to the events that the page shows.

import { pause } from "./pause.js";
import { request } from "./server.js";

const WATCH = 2000; // ms between requests

/**
 * @typedef {import("./types.js").Attached} Attached
 * @typedef {import("./types.js").StoredConversation} StoredConversation
 * @typedef {import("./types.js").StoredQuestion} StoredQuestion
 * @typedef {import("./types.js").StoredAnswer} StoredAnswer
 * @typedef {import("./types.js").TurnEvent} TurnEvent
 * @typedef {{ question: StoredQuestion, answer: StoredAnswer }} Pair
 */

/**
 * @param {string} id
 * @param {string} query
 * @param {AbortSignal} signal
 * @returns {Promise<StoredConversation>}
 */
export function fetchConversation(id, query, signal) {
  return request("GET", `${pathOf(id)}?${query}`, undefined, { signal, read: withExactParams });
}

/** @param {string} id */
const pathOf = (id) => `v1/conversations/${encodeURIComponent(id)}`;

/**
 * Preserves large numbers in parameters exactly: a person must see what ran.
 * @param {string} json
 * @returns {StoredConversation}
 */
function withExactParams(json) {
  const found = JSON.parse(json), exact = parseExactly(json);
  found.messages.forEach((/** @type {StoredAnswer} */ { parts }, /** @type {number} */ n) => {
    parts.forEach((part, m) => part.type === "call" && (part.params = exact.messages[n].parts[m].params));
  });
  return found;
}

/** Parses JSON so that it is written again with exactly the same numbers. @param {string} json */
export function parseExactly(json) {
  const { parse } = /** @type {any} */ (JSON); // the types of ES2023 lack the source
  return parse(json, exactNumber);
}

/** @param {string} _ @param {any} value @param {{ source?: string }} at */
function exactNumber(_, value, at) {
  const { rawJSON } = /** @type {any} */ (JSON);
  return typeof value === "number" && rawJSON && at.source !== String(value) ? rawJSON(at.source) : value;
}

/**
 * Waits for the end of a turn whose events this page cannot read.
 * @param {string} id
 * @param {AbortSignal} signal
 */
export async function waitUntilIdle(id, signal) {
  for (;;) {
    await pause(WATCH, signal);
    const found = await fetchConversation(id, "limit=1", signal).catch(() => null);
    if (found && !found.running) return;
  }
}

/**
 * The questions with their answers, oldest first.
 * @param {StoredConversation} found
 * @returns {Pair[]}
 */
export function pairMessages({ messages }) {
  return messages.flatMap((question, n) => {
    const answer = messages[n + 1];
    return question.role === "user" && answer.role === "assistant" ? [{ question, answer }] : [];
  });
}

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
 * @returns {Promise<{ found: StoredConversation, answer: import("./types.js").StoredAnswer | undefined } | null>}
 */
export async function fetchLatest(id, limit, signal) {
  const found = await fetchConversation(id ?? "", `limit=${limit}`, signal).catch(() => null);
  return found && { found, answer: pairMessages(found).at(-1)?.answer };
}

/**
 * What was attached to a question.
 * @param {StoredConversation} found the conversation
 * @param {StoredQuestion} question
 * @returns {Attached[]}
 */
export function filesOf(found, question) {
  const files = new Map(found.files.map((file) => [file.id, file]));
  return question.files.flatMap((id) => {
    const file = files.get(id);
    return file ? [{ ...file, file: null, preview: `${pathOf(found.id)}/files/${id}` }] : [];
  });
}

/**
 * The events of a stored answer. Its texts are complete.
 * @param {StoredAnswer} message
 * @returns {TurnEvent[]}
 */
export function eventsOf(message) {
  return [
    makeEvent("turn_start", { model: message.model }),
    ...eventsOfParts(message),
    ...(message.usage ? [makeEvent("usage", message.usage)] : []),
    ...(message.state === "running" ? [] : [endingOf(message)]),
  ];
}

/**
 * The parts, each after the beginning of its round.
 * @param {StoredAnswer} message
 * @returns {TurnEvent[]}
 */
function eventsOfParts({ parts, rounds = [] }) {
  const pending = [...rounds];
  const upTo = (/** @type {number} */ round) => {
    const end = pending.findIndex(({ n }) => n > round);
    return pending.splice(0, end < 0 ? pending.length : end).map((one) => makeEvent("round", one));
  };
  return [...parts.flatMap((part) => [...upTo("round" in part && part.round || 0), eventOf(part)]), ...upTo(Infinity)];
}

/**
 * @template {keyof import("./types.js").Events} N
 * @param {N} name
 * @param {import("./types.js").Events[N]} data
 * @param {string} [raw] the JSON of a call, whose parameters are shown exactly
 * @returns {import("./types.js").EventOf<N>}
 */
function makeEvent(name, data, raw = "") {
  return { name, data, raw };
}

/** @param {import("./types.js").Part} part @returns {TurnEvent} */
function eventOf(part) {
  if (part.type === "call") return eventOfCall(part);
  if (part.type === "notice") return makeEvent("notice", part);
  if (part.type === "text") return makeEvent("token", { text: part.text, isComplete: true });
  if (part.type === "steered") return makeEvent("notice", { text: part.text, code: "steered" });
  return makeEvent(part.type, part);
}

/** @param {import("./types.js").CallPart} part @returns {TurnEvent} */
function eventOfCall(part) {
  const raw = JSON.stringify({ params: part.params });
  if (part.outcome === null && part.approval === "asked") return makeEvent("specialist_start", part, raw);
  if (part.outcome === null) return makeEvent("specialist_result", part, raw);
  return makeEvent("specialist_error", { ...part, code: part.outcome }, raw);
}

/** @param {StoredAnswer} answer @returns {TurnEvent} */
function endingOf({ id, state, stop_reason, error, message, recoverable = true, total_ms }) {
  if (state === "complete" || state === "cancelled") {
    return makeEvent("done", { stop_reason: stop_reason ?? state, message_id: id, text: "", total_ms });
  }
  const code = error ?? state;
  return makeEvent("error", { code, message: message ?? "", recoverable });
}

/** @param {StoredQuestion} message */
export function textOf({ parts }) {
  return parts.map((part) => part.type === "text" ? part.text : "").join("");
}
