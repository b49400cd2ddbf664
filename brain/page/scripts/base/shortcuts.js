// Keyboard shortcuts that work anywhere on the page.

import { t } from "./texts.js";

const mac = /Mac|iP/.test(navigator.platform);

/** The name of the modifier key on this machine. */
export const commandKey = mac ? "⌘" : t("control");

/**
 * @typedef {{ key: string, shift: boolean, label: string, act: () => void }} Shortcut
 * @type {Shortcut[]}
 */
const shortcuts = [];

/**
 * Adds a shortcut with Ctrl (⌘ on a Mac) and optionally Shift. It works while no dialog is open.
 * @param {string} key as in `KeyboardEvent.key`, in lower case
 * @param {boolean} shift
 * @param {string} label
 * @param {() => void} act
 */
export function addShortcut(key, shift, label, act) {
  shortcuts.push({ key, shift, label, act });
}

/**
 * All shortcuts, for display.
 * @returns {{ keys: string[], label: string }[]}
 */
export function listShortcuts() {
  return shortcuts.map(({ key, shift, label }) => {
    return { keys: [commandKey, ...(shift ? [t("shift")] : []), key.toUpperCase()], label };
  });
}

document.addEventListener("keydown", (event) => {
  if (!(mac ? event.metaKey : event.ctrlKey) || event.altKey || event.isComposing) return;
  const found = shortcuts.find(({ key, shift }) => {
    return key === event.key.toLowerCase() && (shift === event.shiftKey || key === "/"); // perhaps typed with Shift
  });
  if (!found || document.querySelector("dialog[open]")) return;
  event.preventDefault();
  found.act();
});
