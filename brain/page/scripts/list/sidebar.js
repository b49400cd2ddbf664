// The sidebar with the list: beside the conversation, or over it on a narrow screen.

import { find, hasTouchScreen } from "../base/dom.js";
import { sharedStorage } from "../base/storage.js";

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
  narrow.onchange = () => unfold(!narrow.matches && sharedStorage.get("history") !== "hidden");
  unfold(root.classList.contains("with-history"));
}

export function showSide() {
  unfold(true);
}

/** Closes a sidebar that covers the conversation. */
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
  find("stage", HTMLElement).inert = visible && narrow.matches; // the sidebar covers it
  if (!narrow.matches) sharedStorage.put("history", visible ? null : "hidden");
  else if (visible) (hasTouchScreen ? close : search).focus();
}

function fold() {
  unfold(false);
  toggle.focus();
}
