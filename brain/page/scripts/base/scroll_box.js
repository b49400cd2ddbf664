// A scrollable box of limited height that shows when it has more content below.

import { make } from "./dom.js";
import { t } from "./texts.js";

const NEAR = 4; // pixels

/**
 * @param {string} name
 * @param {HTMLElement} content
 * @returns {HTMLDivElement}
 */
export function makeScrollBox(name, content) {
  const inside = make("div", "box-inside", content), below = make("span", "below small", t("moreBelow"));
  inside.role = "group";
  inside.ariaLabel = name;
  below.ariaHidden = "true";
  const look = () => {
    inside.tabIndex = inside.scrollHeight > inside.clientHeight ? 0 : -1;
    below.hidden = inside.scrollHeight - inside.scrollTop - inside.clientHeight < NEAR;
  };
  const sizes = new ResizeObserver(look);
  for (const one of [inside, content]) sizes.observe(one);
  inside.addEventListener("scroll", look, { passive: true });
  return make("div", "box", inside, below);
}
