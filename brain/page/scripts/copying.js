// Ground: copying a text.

import { make } from "./dom.js";

/**
 * Copies, and shows that it did.
 * @param {MouseEvent} event
 * @param {string} text
 */
export async function copy(event, text) {
  const clicked = /** @type {HTMLButtonElement} */ (event.currentTarget);
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    copyOld(text);
  }
  clicked.classList.add("copied");
  clicked.querySelector("use")?.setAttribute("href", "#i-check");
  setTimeout(() => {
    clicked.classList.remove("copied");
    clicked.querySelector("use")?.setAttribute("href", "#i-copy");
  }, 1500);
}

/** Where the page came by plain HTTP from another machine, browsers give no clipboard. @param {string} text */
function copyOld(text) {
  const area = make("textarea", "visually-hidden");
  area.value = text;
  const focused = document.activeElement;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
  if (focused instanceof HTMLElement) focused.focus();
}
