// Requests to the server. After a 401, the person can sign in, and the request is sent again.

import { explainError, t } from "./texts.js";

/** An error response of the server. */
export class Refused extends Error {
  /**
   * @param {number} status
   * @param {{ code?: string, message?: string, field?: string, task_id?: string }} error
   * @param {number} [seconds] until the request can be sent again
   */
  constructor(status, error, seconds = 0) {
    super(explainError(error.code ?? "", error.message ?? t("refused", { status }), seconds));
    this.status = status;
    this.code = error.code ?? "";
    this.field = error.field ?? "";
    this.task = error.task_id ?? ""; // the task that a new one repeats
  }
}

/** There was no response. */
export class Unreachable extends Error {
  constructor() {
    super(t("unreachable"));
  }
}

/**
 * The text of an error for a person. Throws errors again that do not come from a request.
 * @param {unknown} error
 */
export function errorText(error) {
  if (error instanceof Refused || error instanceof Unreachable) return error.message;
  throw error;
}

/** Ignores a 404: what should be deleted may be gone already. @param {unknown} error */
export function unlessGone(error) {
  if (!(error instanceof Refused && error.status === 404)) throw error;
}

/** @type {(() => void)[]} */
const awaiting = [];

/** Calls a function once, at the next response. @param {() => void} act */
export function onReachable(act) {
  awaiting.push(act);
}

const SLOW = 1000; // ms that a request waits until streams make room for it

/** @type {(() => void)[]} */
const yielding = [];

/** Calls a function when a request is slow: all tabs together have six connections. @param {() => void} act */
export function onSlowRequest(act) {
  yielding.push(act);
}

/** @type {() => Promise<boolean>} */
let signIn = async () => false;
let signIns = 0;

/**
 * Sets how a person signs in. The function resolves to whether the person did.
 * @param {() => Promise<boolean>} asks
 */
export function setSignIn(asks) {
  signIn = async () => {
    const isSignedIn = await asks();
    if (isSignedIn) signIns++;
    return isSignedIn;
  };
}

/**
 * @param {"GET" | "POST" | "PATCH" | "DELETE"} method
 * @param {string} path relative to the page
 * @param {unknown} [body] a FormData, or data to send as JSON
 * @param {{ signal?: AbortSignal, read?: (json: string) => any }} [how]
 * @returns {Promise<any>} the JSON of the response; null if it is empty
 * @throws {Refused | Unreachable}
 */
export async function request(method, path, body, { signal, read = (json) => JSON.parse(json) } = {}) {
  for (;;) {
    const before = signIns;
    const slow = setTimeout(() => { for (const act of yielding) act(); }, SLOW);
    const sent = fetch(path, { method, ...encodeBody(body), signal }).finally(() => clearTimeout(slow));
    const response = await sent.catch(unlessAborted);
    for (const act of awaiting.splice(0)) act();
    if (response.status === 401 && path !== "v1/session") {
      if (before !== signIns || await signIn()) continue; // a late response is from before the sign-in
      throw new Refused(401, { message: t("notSignedIn") });
    }
    if (!response.ok) throw await readRefusal(response);
    return response.status === 204 ? null : response.text().then(read).catch(unlessAborted);
  }
}

/** @param {unknown} body */
function encodeBody(body) {
  if (body === undefined) return {};
  if (body instanceof FormData) return { body };
  return { body: JSON.stringify(body), headers: { "Content-Type": "application/json" } };
}

/** @param {Error} error @returns {never} */
function unlessAborted(error) {
  throw error.name === "AbortError" ? error : new Unreachable();
}

/** @param {Response} response */
async function readRefusal(response) {
  const body = await response.json().catch(() => null);
  return new Refused(response.status, body?.error ?? {}, Number(response.headers.get("Retry-After")) || 0);
}
