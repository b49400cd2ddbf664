// Whether the open conversation is private: only local models read it, and nothing of it is remembered.

import { find } from "../base/dom.js";
import { tabStorage } from "../base/storage.js";
import { t } from "../base/texts.js";

const NEW = "new"; // a conversation before its first message
const button = find("private", HTMLButtonElement), about = find("private-about", HTMLParagraphElement);

let id = NEW;
let isStored = false; // the server knows it; then it stays private
let chosen = tabStorage.get("private"); // the conversation whose next message makes it private
let isOffered = false;

/** Fires `changed`. */
export const privacy = new EventTarget();

/** @param {import("../base/types.js").Model[]} models */
export function startPrivacy(models) {
  isOffered = models.some(({ local }) => local);
  button.onclick = () => {
    chosen = isPrivate() ? null : id;
    tabStorage.put("private", chosen);
    show();
  };
  show();
}

/** Whether the next message is private. */
export const isPrivate = () => isStored || chosen === id;

/**
 * A conversation is open.
 * @param {string | null} conversation null for a new one
 * @param {boolean} stored whether the server knows that it is private
 */
export function openPrivacy(conversation, stored) {
  id = conversation ?? NEW;
  isStored = stored;
  show();
}

/** A message was sent: its conversation is as private as the message. @param {string} conversation */
export function keepPrivacy(conversation) {
  const isKept = isPrivate();
  if (chosen === id) tabStorage.put("private", (chosen = null));
  openPrivacy(conversation, isKept);
}

function show() {
  const isOn = isPrivate(), isLate = isOn && !isStored && id !== NEW;
  button.hidden = !isOffered && !isOn;
  button.setAttribute("aria-pressed", String(isOn));
  button.disabled = isStored;
  about.textContent = isOn ? t(isLate ? "privateFromNow" : "privateAbout") : "";
  about.hidden = !isOn;
  privacy.dispatchEvent(new Event("changed"));
}
