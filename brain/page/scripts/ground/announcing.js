// Ground: what happens is said to those who listen.

import { find } from "./dom.js";

const regions = { polite: find("said", HTMLElement), urgent: find("urged", HTMLElement) };
const TOGETHER = 200; // ms: what happens within is said in one go, or each would cut off the one before

/** @type {string[]} */
let saying = [];
let waiting = 0;

/**
 * Tells those who listen, when they have a moment.
 * @param {string} text
 */
export function say(text) {
  saying.push(text);
  waiting ||= setTimeout(() => {
    regions.polite.textContent = saying.join(" ");
    saying = [];
    waiting = 0;
  }, TOGETHER);
}

/**
 * Tells those who listen at once.
 * @param {string} text
 */
export function urge(text) {
  regions.urgent.textContent = text;
}
