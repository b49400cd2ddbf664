// Messages for screen readers.

import { find } from "./dom.js";

const regions = { polite: find("announcements", HTMLElement), urgent: find("urgent-announcements", HTMLElement) };
const TOGETHER = 200; // ms; combines messages, since each announcement interrupts the one before

/** @type {string[]} */
let pending = [];
let timer = 0;

/**
 * Announces a text when the screen reader is idle.
 * @param {string} text
 */
export function announce(text) {
  pending.push(text);
  timer ||= setTimeout(() => {
    regions.polite.textContent = pending.join(" ");
    pending = [];
    timer = 0;
  }, TOGETHER);
}

/**
 * Announces a text at once.
 * @param {string} text
 */
export function announceNow(text) {
  regions.urgent.textContent = text;
}
