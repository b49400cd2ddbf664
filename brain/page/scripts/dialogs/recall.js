// Whether answers use memory: for this user (stored by the server), and in this window.

import { find } from "../base/dom.js";
import { tabStorage } from "../base/storage.js";
import { onTabNews } from "../base/tabs.js";
import { t } from "../base/texts.js";

const opener = find("memory-open", HTMLButtonElement);

let everywhere = true;
onTabNews(({ recall }) => { if (typeof recall === "boolean") setRecall(recall); });

/** Whether answers in this window use memory. */
export function usesMemory() {
  return everywhere && !isMemoryLeftOut();
}

/** Whether memory is off in this window. */
export function isMemoryLeftOut() {
  return tabStorage.get("memory") === "out";
}

/** @param {boolean} out */
export function setMemoryLeftOut(out) {
  tabStorage.put("memory", out ? "out" : null);
  show();
}

/** Turns memory on or off for this user. @param {boolean} on */
export function setRecall(on) {
  everywhere = on;
  show();
}

function show() {
  const state = usesMemory() ? "" : t("off");
  opener.dataset.count = state; // CSS shows it, so that the button's name stays the same
  opener.setAttribute("aria-description", state);
}
