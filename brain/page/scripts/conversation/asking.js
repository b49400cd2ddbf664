// Conversation: what is sent to begin a turn.

import { chosen } from "../dialogs/choices.js";
import { pause } from "../ground/pause.js";
import { Refused, Unreachable, request } from "../ground/server.js";

/** @typedef {import("../ground/types.js").Attached} Attached */

const AGAIN = [1000, 2000, 4000]; // ms until a question is sent again that did not reach the server
const PATIENCE = 10_000; // ms that an answer to it is waited for when it is to be stopped: it may have arrived

/**
 * @param {object} asked
 * @param {string} asked.message
 * @param {Attached[]} asked.files
 * @param {string | null} asked.conversation
 * @param {string | null} asked.replaces
 * @param {string} asked.key an id by which the same request, sent twice, begins one turn
 * @returns {FormData | Record<string, unknown>}
 */
export function bodyOf({ message, files, conversation, replaces, key }) {
  const kept = files.filter(({ id }) => id !== null).map(({ id }) => ({ id }));
  const added = files.filter(({ id, file }) => id === null && file);
  const fields = {
    message,
    request_id: key,
    time_zone: Intl.DateTimeFormat().resolvedOptions().timeZone,
    ...(conversation ? { conversation_id: conversation } : {}),
    ...(replaces ? { replace_from: replaces } : {}),
    ...(kept.length ? { attachments: kept } : {}),
    ...chosen(),
  };
  return added.length ? asForm(fields, added) : fields;
}

/** @type {{ what: string, key: string } | null} */
let last = null;

/**
 * An id for a request. The same question, sent again since nobody knew whether it had arrived, has the same.
 * @param {{ message: string, files: Attached[], conversation: string | null, replaces: string | null }} asked
 */
export function keyOf({ message, files, conversation, replaces }) {
  const what = JSON.stringify([message, files.map(({ name, size }) => [name, size]), conversation, replaces]);
  if (last?.what !== what) last = { what, key: crypto.getRandomValues(new Uint32Array(4)).join("-") };
  return last.key;
}

/**
 * Files go as they are, in a form: base64 would make them a third larger.
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
 * Begins a turn. A request that did not arrive is sent again a few times: its id lets it begin no second turn.
 * @param {FormData | Record<string, unknown>} body
 * @param {AbortSignal} stopped by the person: it is still to be found out whether it began, but not for long
 * @param {() => void} again called when the first attempt failed
 * @returns {Promise<{ turn_id: string, conversation_id: string }>}
 */
export async function begin(body, stopped, again) {
  const late = new AbortController(), { signal } = late;
  stopped.addEventListener("abort", () => setTimeout(() => late.abort(new Unreachable()), PATIENCE));
  for (let attempt = 0; ; attempt += 1) {
    try {
      const begun = await request("POST", "v1/turns", body, { signal });
      last = null;
      return begun;
    } catch (error) {
      if (error instanceof Refused) last = null;
      if (!(error instanceof Unreachable) || attempt === AGAIN.length || stopped.aborted) throw error;
      again();
      await pause(AGAIN[attempt], stopped).catch(() => {}); // once more all the same: it may have arrived, and run
    }
  }
}
