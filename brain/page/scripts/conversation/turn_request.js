// The request that starts a turn.

import { pause } from "../base/pause.js";
import { Refused, Unreachable, request } from "../base/server.js";
import { chosenFields } from "../dialogs/choices.js";

/** @typedef {import("../base/types.js").Attached} Attached */

const AGAIN = [1000, 2000, 4000]; // ms until a message is sent again that did not reach the server
const PATIENCE = 10_000; // ms to wait for a response before a stop, since the message may have arrived

/**
 * @param {object} question
 * @param {string} question.message
 * @param {Attached[]} question.files
 * @param {string | null} question.conversation
 * @param {string | null} question.replaces
 * @param {string} question.key an id that prevents a second turn when the request is sent again
 * @returns {FormData | Record<string, unknown>}
 */
export function bodyOf({ message, files, conversation, replaces, key }) {
  const existing = files.filter(({ id }) => id !== null).map(({ id }) => ({ id }));
  const added = files.filter(({ id, file }) => id === null && file);
  const fields = {
    message,
    request_id: key,
    time_zone: Intl.DateTimeFormat().resolvedOptions().timeZone,
    ...(conversation ? { conversation_id: conversation } : {}),
    ...(replaces ? { replace_from: replaces } : {}),
    ...(existing.length ? { attachments: existing } : {}),
    ...chosenFields(),
  };
  return added.length ? asForm(fields, added) : fields;
}

/** @type {{ what: string, key: string } | null} */
let last = null;

/**
 * The id of a request. A message that is sent again has the same id.
 * @param {{ message: string, files: Attached[], conversation: string | null, replaces: string | null }} question
 */
export function keyOf({ message, files, conversation, replaces }) {
  const what = JSON.stringify([message, files.map(({ name, size }) => [name, size]), conversation, replaces]);
  if (last?.what !== what) last = { what, key: crypto.getRandomValues(new Uint32Array(4)).join("-") };
  return last.key;
}

/**
 * Sends files in a form, since base64 would make them a third larger.
 * @param {object} fields
 * @param {Attached[]} added
 */
function asForm(fields, added) {
  const form = new FormData();
  for (const [name, value] of Object.entries(fields)) {
    form.append(name, typeof value === "string" ? value : JSON.stringify(value));
  }
  for (const { file, name } of added) form.append("file", /** @type {File} */ (file), name);
  return form;
}

/**
 * Starts a turn. A request that did not arrive is sent again; its id prevents a second turn.
 * @param {FormData | Record<string, unknown>} body
 * @param {AbortSignal} stopped aborted by the person; the page still checks for a while whether the turn started
 * @param {() => void} again called when the first attempt failed
 * @returns {Promise<{ turn_id: string, conversation_id: string }>}
 */
export async function startTurn(body, stopped, again) {
  const late = new AbortController(), { signal } = late;
  stopped.addEventListener("abort", () => setTimeout(() => late.abort(new Unreachable()), PATIENCE));
  for (let attempt = 0; ; attempt += 1) {
    try {
      const turn = await request("POST", "v1/turns", body, { signal });
      last = null;
      return turn;
    } catch (error) {
      if (error instanceof Refused) last = null;
      if (!(error instanceof Unreachable) || attempt === AGAIN.length || stopped.aborted) throw error;
      again();
      await pause(AGAIN[attempt], stopped).catch(() => {}); // after a stop, tries once more, since the turn may run
    }
  }
}
