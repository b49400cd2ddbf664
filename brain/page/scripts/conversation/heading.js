// The title of the conversation, and the banner about the connection.

import { find } from "../base/dom.js";
import { t } from "../base/texts.js";

const title = find("title", HTMLElement), banner = find("banner", HTMLElement);

let count = 0; // tasks that need the person

/** @param {string} name an empty text if it has none */
export function setTitle(name) {
  title.textContent = name || t("brain");
  showInTab();
}

/** Shows a number in the title of the tab. @param {number} number 0 for none */
export function setBadge(number) {
  count = number;
  showInTab();
}

function showInTab() {
  const name = title.textContent, page = t("brain");
  document.title = `${count ? `(${count}) ` : ""}${name && name !== page ? `${name} · ` : ""}${page}`;
}

/** @param {string} text an empty text hides the banner */
export function showWarning(text) {
  banner.textContent = text;
  banner.hidden = !text;
}
