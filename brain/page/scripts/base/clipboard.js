// Copy text to the clipboard.

import { announce } from "./announcements.js";
import { make, makeButton } from "./dom.js";
import { t } from "./texts.js";

/**
 * Copies a text and confirms it in the button.
 * @param {Element} clicked
 * @param {string} text
 */
export async function copy(clicked, text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    copyOld(text);
  }
  announce(t("copied"));
  show(clicked, true);
  setTimeout(() => show(clicked, false), 1500);
}

/**
 * A button that copies.
 * @param {string} label
 * @param {string} text
 */
export function makeCopyButton(label, text) {
  const node = makeButton(label, () => copy(node, text), { icon: "copy", className: "quiet square" });
  return node;
}

/**
 * An answer as text to copy, followed by a list of its sources.
 * @param {string} text
 * @param {import("./types.js").Citation[]} sources
 */
export function addSources(text, sources) {
  const lines = [...new Set(sources.map(formatSource))].map((one, n) => `${n + 1}. ${one}`);
  return lines.length ? [text, `${t("sourcesTitle")}:`, lines.join("\n")].join("\n\n") : text;
}

/** @param {import("./types.js").Citation} source */
function formatSource({ id, title, url }) {
  const name = (title || url || id).replace(/[[\]\\]/g, "\\$&");
  const address = url?.replace(/[()<>\s]/g, (character) => `%${character.charCodeAt(0).toString(16).padStart(2, "0")}`);
  return address ? `[${name}](${address})` : name;
}

/** For pages over plain HTTP from another machine, where browsers offer no clipboard. @param {string} text */
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

/**
 * @param {Element} clicked
 * @param {boolean} copied
 */
function show(clicked, copied) {
  clicked.classList.toggle("copied", copied);
  clicked.querySelector("use")?.setAttribute("href", copied ? "#i-check" : "#i-copy");
}
