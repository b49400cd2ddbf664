// A button with a menu. Esc and a click elsewhere close it, and the focus returns to the button.

import { make, makeButton, makeIcon } from "./dom.js";

/** @typedef {{ label: string, icon: string, act: () => void, danger?: boolean }} Choice */

/**
 * @param {string} label
 * @param {Choice[]} choices
 */
export function makeMenuButton(label, choices) {
  /** @type {HTMLElement | null} */
  let menu = null;
  const opener = makeButton(label, (event) => {
    event.preventDefault(); // the browser would open it too, at another position
    if (!menu?.isConnected) menu = makeMenu(opener, choices);
    menu.togglePopover();
    if (menu.matches(":popover-open")) show(menu, opener);
  }, { icon: "more", className: "quiet square" });
  opener.setAttribute("aria-haspopup", "menu");
  opener.setAttribute("aria-expanded", "false");
  return opener;
}

/**
 * @param {HTMLButtonElement} opener
 * @param {Choice[]} choices
 */
function makeMenu(opener, choices) {
  const closed = new AbortController();
  const close = () => {
    menu.hidePopover();
    menu.remove();
  };
  const menu = make("div", "menu", ...choices.map((choice) => makeItem(choice, close)));
  menu.popover = "auto";
  menu.setAttribute("role", "menu");
  menu.setAttribute("aria-label", opener.getAttribute("aria-label") ?? "");
  menu.onkeydown = (event) => onKey(event, menu);
  menu.addEventListener("toggle", (event) => {
    if (event.newState === "open") return;
    closed.abort();
    if (opener.popoverTargetElement === menu) opener.setAttribute("aria-expanded", "false"); // not for the next menu
    menu.remove();
  });
  opener.popoverTargetElement = menu; // then the browser does not close the menu at a click on the button
  addEventListener("scroll", close, { capture: true, signal: closed.signal });
  opener.after(menu);
  return menu;
}

/**
 * @param {Choice} choice
 * @param {() => void} close
 */
function makeItem(choice, close) {
  const node = make("button", choice.danger ? "danger" : "", makeIcon(choice.icon), choice.label);
  node.type = "button";
  node.setAttribute("role", "menuitem");
  node.tabIndex = -1;
  node.onclick = () => {
    close();
    choice.act();
  };
  return node;
}

/**
 * Places the menu below its button, or above it if there is no room.
 * @param {HTMLElement} menu
 * @param {HTMLElement} opener
 */
function show(menu, opener) {
  const { bottom, top, right } = opener.getBoundingClientRect(), { offsetHeight: height, offsetWidth: width } = menu;
  menu.style.top = `${bottom + height + 8 < innerHeight ? bottom + 4 : top - height - 4}px`;
  menu.style.left = `${Math.max(8, Math.min(right - width, innerWidth - width - 8))}px`;
  opener.setAttribute("aria-expanded", "true");
  focusOn(menu, 0);
}

/** @param {KeyboardEvent} event @param {HTMLElement} menu */
function onKey(event, menu) {
  const now = [...menu.children].indexOf(/** @type {Element} */ (document.activeElement));
  const to = { ArrowDown: now + 1, ArrowUp: now - 1, Home: 0, End: -1 }[event.key];
  if (event.key === "Tab") menu.hidePopover();
  if (to === undefined) return;
  event.preventDefault();
  focusOn(menu, to);
}

/** @param {HTMLElement} menu @param {number} n wraps around */
function focusOn(menu, n) {
  const node = menu.children[(n + menu.children.length) % menu.children.length];
  if (node instanceof HTMLElement) node.focus();
}
