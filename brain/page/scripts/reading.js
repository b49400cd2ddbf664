// Room: reading along: the log stays at its end while one is there, and what happens is said to those who listen.

import { find } from "./dom.js";

export const log = find("log", HTMLElement);
const newest = find("newest", HTMLButtonElement);
const regions = { polite: find("said", HTMLElement), urgent: find("urged", HTMLElement) };

const NEAR = 8; // pixels from the end that still count as being there
const TOGETHER = 200; // ms: what happens within is said in one go, since what comes next would cut off what is being said

let atEnd = true, seen = 0, waiting = 0;
/** @type {string[]} */
let saying = [];

/** The log begins to keep to its end. */
export function startReading() {
  log.addEventListener("scroll", look, { passive: true });
  log.addEventListener("wheel", (event) => { if (event.deltaY < 0) leaveEnd(); }, { passive: true });
  newest.addEventListener("click", () => {
    toEnd();
    log.focus({ preventScroll: true });
  });
  new ResizeObserver(follow).observe(log);
}

function look() {
  const away = log.scrollHeight - log.scrollTop - log.clientHeight;
  if (away < NEAR) atEnd = true;
  else if (log.scrollTop < seen) atEnd = false; // not when the log grew or shrank
  seen = log.scrollTop;
  newest.hidden = away < log.clientHeight / 3;
}

/** Who scrolls up wants to stay there, also when the log grows before the scrolling has begun. */
function leaveEnd() {
  if (log.scrollHeight > log.clientHeight) atEnd = false;
}

/** Behind every change of the log: shows its end to those who were there. */
export function follow() {
  if (atEnd) log.scrollTop = log.scrollHeight;
  else look();
}

/** Goes to the end of the log, and stays there. */
export function toEnd() {
  atEnd = true;
  follow();
  look();
}

/**
 * Changes what stands above, while what is read stays where it is.
 * @param {() => void} change
 */
export function keepingPlace(change) {
  const fromEnd = log.scrollHeight - log.scrollTop;
  change();
  log.scrollTop = log.scrollHeight - fromEnd;
}

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
