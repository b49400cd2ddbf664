// The title of the conversation, and the banner about the connection.

import { find } from "../base/dom.js";
import { t } from "../base/texts.js";

const title = find("title", HTMLElement), banner = find("banner", HTMLElement);

/** @param {string} name an empty text if it has none */
export function setTitle(name) {
  title.textContent = name || t("brain");
  document.title = name ? `${name} · ${t("brain")}` : t("brain");
}

/** @param {string} text an empty text hides the banner */
export function showWarning(text) {
  banner.textContent = text;
  banner.hidden = !text;
}
