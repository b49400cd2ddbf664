// Whether Brain chooses specialists in the open conversation, for models that do not call any by themselves.

import { find, make, makeButton } from "../base/dom.js";
import { sharedStorage, tabStorage } from "../base/storage.js";
import { t } from "../base/texts.js";

const MOST = 200; // stored conversations; the oldest ones are dropped
const about = find("assist-about", HTMLParagraphElement);

/** @type {string | null} */
let id = null; // null before the first message

/** Whether it is off for the open conversation. */
export const isAssistOff = () => id ? storedIds().includes(id) : tabStorage.get("assist") === "off";

/** Turns it on or off for the open conversation. @param {boolean} on */
export function setAssist(on) {
  if (id) {
    const ids = [...storedIds().filter((one) => one !== id), ...(on ? [] : [id])];
    sharedStorage.put("assist.off", ids.slice(-MOST).join(" ") || null);
  } else tabStorage.put("assist", on ? null : "off");
  show();
}

/** A conversation is open. @param {string | null} conversation null for a new one */
export function openAssist(conversation) {
  id = conversation;
  show();
}

/** A message was sent: what was chosen for a new conversation now belongs to it. @param {string} conversation */
export function keepAssist(conversation) {
  const isOff = !id && isAssistOff();
  if (isOff) tabStorage.put("assist", null);
  id = conversation;
  if (isOff) setAssist(false);
}

/** A button on the card of a call that Brain chose. */
export function makeAssistButton() {
  const button = makeButton(t("assistStop"), () => setAssist(isAssistOff()), { className: "assist-button" });
  button.title = t("assistAbout");
  label(button);
  return make("div", "section", button);
}

/** @param {Element} button */
function label(button) {
  button.textContent = t(isAssistOff() ? "assistResume" : "assistStop");
}

function storedIds() {
  return sharedStorage.get("assist.off")?.split(" ") ?? [];
}

function show() {
  about.textContent = isAssistOff() ? t("assistIsOff") : "";
  about.hidden = !isAssistOff();
  document.querySelectorAll(".assist-button").forEach(label);
}
