// List: the side with the conversations: shown beside the open one, or over it where there is no room for both.

import { find, touched } from "../ground/dom.js";
import { kept } from "../ground/keeping.js";

const root = document.documentElement, side = find("history", HTMLElement), search = find("search", HTMLInputElement);
const narrow = matchMedia("(max-width: 48rem)");
const toggle = find("history-toggle", HTMLButtonElement), close = find("history-close", HTMLButtonElement);

export function startSide() {
  toggle.onclick = toggleSide;
  side.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || event.defaultPrevented || !narrow.matches) return;
    event.preventDefault();
    fold();
  });
  for (const one of [find("scrim", HTMLElement), close]) one.onclick = fold;
  narrow.onchange = () => unfold(!narrow.matches && kept.get("history") !== "hidden");
  unfold(root.classList.contains("with-history"));
}

export function showSide() {
  unfold(true);
}

/** What was chosen is seen where the list lay over it. */
export function leaveSide() {
  if (narrow.matches) unfold(false);
}

export function toggleSide() {
  unfold(!root.classList.contains("with-history"));
}

/** @param {boolean} visible */
function unfold(visible) {
  root.classList.toggle("with-history", visible);
  toggle.setAttribute("aria-expanded", String(visible));
  find("stage", HTMLElement).inert = visible && narrow.matches; // it lies behind the list
  if (!narrow.matches) kept.put("history", visible ? null : "hidden");
  else if (visible) (touched ? close : search).focus();
}

function fold() {
  unfold(false);
  toggle.focus();
}
