// The two views of the sidebar: conversations and tasks.

import { find } from "../base/dom.js";

/** @typedef {"conversations" | "tasks"} View */

/** @type {View[]} */
const VIEWS = ["conversations", "tasks"];
const tabs = VIEWS.map((name) => find(`${name}-tab`, HTMLButtonElement));
const search = find("search", HTMLInputElement);
const buttons = [find("new-conversation", HTMLButtonElement), find("new-task", HTMLButtonElement)];

/** Fires `changed` when another view is visible. */
export const views = new EventTarget();

export function startViews() {
  for (const [n, tab] of tabs.entries()) {
    tab.onclick = () => showView(VIEWS[n]);
    tab.onkeydown = ({ key }) => {
      if (!["ArrowLeft", "ArrowRight"].includes(key)) return;
      showView(VIEWS[1 - n]);
      tabs[1 - n].focus();
    };
  }
  showView("conversations");
}

/** @param {View} view */
export function showView(view) {
  for (const [n, name] of VIEWS.entries()) {
    const isShown = name === view;
    tabs[n].setAttribute("aria-selected", String(isShown));
    tabs[n].tabIndex = isShown ? 0 : -1;
    find(`${name}-view`, HTMLElement).hidden = !isShown;
    buttons[n].hidden = !isShown;
  }
  search.hidden = view !== "conversations";
  views.dispatchEvent(new Event("changed"));
}

/** Whether a person can see the tasks. */
export function areTasksVisible() {
  return !document.hidden && find("tasks-view", HTMLElement).checkVisibility();
}
