// Ground: requests to the server. All other rooms ask here; a 401 lets the person sign in, and asks again.

import { t } from "./texts.js";

/** What the server refused, in its own words. */
export class Refused extends Error {
  /**
   * @param {number} status
   * @param {{ code?: string, message?: string }} error
   * @param {number} [seconds] after which it may be asked again
   */
  constructor(status, error, seconds = 0) {
    const message = error.message ?? t("refused", { status });
    super(seconds ? t("tryLater", { message, count: seconds }) : message);
    this.status = status;
    this.code = error.code ?? "";
  }
}

/** The server was not reached. */
export class Unreachable extends Error {
  constructor() {
    super(t("unreachable"));
  }
}

/**
 * What to tell a person of an error. Those that are not of a request are thrown on.
 * @param {unknown} error
 */
export function told(error) {
  if (error instanceof Refused || error instanceof Unreachable) return error.message;
  throw error;
}

/** What is to be deleted may be gone already. @param {unknown} error */
export function unlessGone(error) {
  if (!(error instanceof Refused && error.status === 404)) throw error;
}

/** @type {(() => void)[]} */
const awaiting = [];

/** Calls when the server has answered again. @param {() => void} act */
export function onceReached(act) {
  awaiting.push(act);
}

/** @type {() => Promise<boolean>} */
let signIn = async () => false;

/**
 * Who asks for the key when the server wants one: whether somebody signed in.
 * @param {() => Promise<boolean>} asks
 */
export function signsIn(asks) {
  signIn = asks;
}

/**
 * @param {"GET" | "POST" | "PATCH" | "DELETE"} method
 * @param {string} path relative to the page
 * @param {unknown} [body] a FormData as it is, all else as JSON
 * @param {{ signal?: AbortSignal, read?: (json: string) => any }} [how]
 * @returns {Promise<any>} the JSON of the answer; null of an empty one
 * @throws {Refused | Unreachable}
 */
export async function request(method, path, body, { signal, read = (json) => JSON.parse(json) } = {}) {
  for (;;) {
    const response = await fetch(path, { method, ...sent(body), signal }).catch(unlessAborted);
    for (const act of awaiting.splice(0)) act();
    if (response.status === 401 && path !== "v1/session") {
      if (await signIn()) continue;
      throw new Refused(401, { code: "unauthorized", message: t("notSignedIn") }); // not in words for programs
    }
    if (!response.ok) throw await refusal(response);
    return response.status === 204 ? null : response.text().then(read).catch(unlessAborted);
  }
}

/** @param {unknown} body */
function sent(body) {
  if (body === undefined) return {};
  if (body instanceof FormData) return { body };
  return { body: JSON.stringify(body), headers: { "Content-Type": "application/json" } };
}

/** @param {Error} error @returns {never} */
function unlessAborted(error) {
  throw error.name === "AbortError" ? error : new Unreachable();
}

/** @param {Response} response */
async function refusal(response) {
  const body = await response.json().catch(() => null);
  return new Refused(response.status, body?.error ?? {}, Number(response.headers.get("Retry-After")) || 0);
}
