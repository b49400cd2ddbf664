// Dialogs: whether memory is used: for this user, as the server keeps it, and in this window.

import { find } from "../ground/dom.js";
import { keptHere } from "../ground/keeping.js";
import { hearTabs } from "../ground/tabs.js";
import { t } from "../ground/texts.js";

const opener = find("memory-open", HTMLButtonElement);

let everywhere = true;
hearTabs(({ recall }) => { if (typeof recall === "boolean") recallIs(recall); });

/** Whether questions asked here may be answered from memory. */
export function usesMemory() {
  return everywhere && !leavesMemoryOut();
}

/** Whether questions of this window do without what is remembered. */
export function leavesMemoryOut() {
  return keptHere.get("memory") === "out";
}

/** @param {boolean} out */
export function leaveMemoryOut(out) {
  keptHere.put("memory", out ? "out" : null);
  show();
}

/** It is on or off for this user. @param {boolean} on */
export function recallIs(on) {
  everywhere = on;
  show();
}

function show() {
  const state = usesMemory() ? "" : t("off");
  opener.dataset.count = state; // shown by the style: the button's name stays the same
  opener.setAttribute("aria-description", state);
}
