// Answer: reading along. A question goes to the top of the log and stays there; who is at the end is kept there.

import { find } from "../ground/dom.js";

export const log = find("log", HTMLElement);
const newest = find("newest", HTMLButtonElement);

const NEAR = 8; // pixels from the end that still count as being there
const BELOW = 24; // pixels below the last line that hold nothing

/** @type {"start" | "end" | "own"} */
let place = "end"; // where one reads: from the start of the newest answer, at its end, or where one went
let seen = 0;

/** The log begins to keep to the place. */
export function startReading() {
  log.addEventListener("scroll", look, { passive: true });
  log.addEventListener("wheel", (event) => { if (event.deltaY < 0) stayThere(); }, { passive: true });
  log.addEventListener("click", ({ target }) => { // who opens something reads that
    if (target instanceof Element && target.closest("summary")) place = "own";
  });
  newest.addEventListener("click", () => {
    toEnd();
    log.focus({ preventScroll: true });
  });
  new ResizeObserver(follow).observe(log);
}

function look() {
  const away = log.scrollHeight - log.scrollTop - log.clientHeight;
  if (log.scrollTop > seen) place = away < NEAR ? "end" : "own";
  else if (log.scrollTop < seen && away >= NEAR) place = "own"; // not when the log grew or shrank
  seen = log.scrollTop;
  newest.hidden = away < BELOW;
}

/** Who scrolls up wants to stay there, also when the log grows before the scrolling has begun. */
function stayThere() {
  if (log.scrollHeight > log.clientHeight) place = "own";
}

/** Behind every change of the log: shows its end to those who were there. */
export function follow() {
  if (place === "end") move(() => { log.scrollTop = log.scrollHeight; });
  look();
}

/** @param {() => void} act which moves the log, so that nobody else did */
function move(act) {
  act();
  seen = log.scrollTop;
}

/** Goes to the end of the log, and stays there. */
export function toEnd() {
  place = "end";
  follow();
}

/**
 * Shows a question at the top, so that its answer is read from its beginning on; it has room for that from the first.
 * @param {HTMLElement} question
 * @param {HTMLElement} answer the last one
 */
export function toStart(question, answer) {
  for (const former of log.querySelectorAll(".asked")) former.classList.remove("asked");
  log.style.setProperty("--question", `${question.offsetHeight}px`);
  answer.classList.add("asked");
  move(() => { log.scrollTop = log.scrollHeight; });
  place = "start";
  look();
}

/** At the end something has to be seen: shows it, unless one went elsewhere. */
export function reveal() {
  if (place === "start") toEnd();
  else follow();
}

/** Whether the end of the log is in sight. */
export function isAtEnd() {
  return log.scrollHeight - log.scrollTop - log.clientHeight < NEAR;
}

/**
 * Changes what stands above, while what is read stays where it is.
 * @param {() => void} change
 */
export function keepingPlace(change) {
  const fromEnd = log.scrollHeight - log.scrollTop;
  change();
  move(() => { log.scrollTop = log.scrollHeight - fromEnd; });
}
