// Conversation: what stands above and below the conversation: its title, and what there is to say of the connection.

import { find } from "../ground/dom.js";
import { t } from "../ground/texts.js";

const title = find("title", HTMLElement), banner = find("banner", HTMLElement);

/** @param {string} name empty for a conversation without one */
export function entitle(name) {
  title.textContent = name || t("brain");
  document.title = name ? `${name} · ${t("brain")}` : t("brain");
}

/** @param {string} text empty to say nothing */
export function warn(text) {
  banner.textContent = text;
  banner.hidden = !text;
}
