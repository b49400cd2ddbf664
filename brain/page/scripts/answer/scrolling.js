// The scroll position: at the start of the newest answer, at its end, or where the person scrolled.

import { find } from "../base/dom.js";

export const log = find("log", HTMLElement);
const newest = find("newest", HTMLButtonElement);

const NEAR = 8; // pixels from the end that count as the end
const BELOW = 24; // empty pixels below the last line

/** @type {"start" | "end" | "own"} */
let place = "end"; // the start of the newest answer, its end, or where the person scrolled
let lastTop = 0;

/** Starts to follow the scrolling of the person. */
export function startScrolling() {
  log.addEventListener("scroll", look, { passive: true });
  log.addEventListener("wheel", (event) => { if (event.deltaY < 0) stayThere(); }, { passive: true });
  log.addEventListener("click", ({ target }) => { // a person who opens something reads it
    if (target instanceof Element && target.closest("summary")) place = "own";
  });
  newest.addEventListener("click", () => {
    scrollToEnd();
    log.focus({ preventScroll: true });
  });
  new ResizeObserver(follow).observe(log);
}

function look() {
  const away = log.scrollHeight - log.scrollTop - log.clientHeight;
  if (log.scrollTop > lastTop) place = away < NEAR ? "end" : "own";
  else if (log.scrollTop < lastTop && away >= NEAR) place = "own"; // not because the log grew or shrank
  lastTop = log.scrollTop;
  newest.hidden = away < BELOW;
}

/** Stays where the person scrolls up to, even if the log grows before the scrolling starts. */
function stayThere() {
  if (log.scrollHeight > log.clientHeight) place = "own";
}

/** Call it after every change of the log: shows the end if the end was visible. */
export function follow() {
  if (place === "end") move(() => { log.scrollTop = log.scrollHeight; });
  look();
}

/** @param {() => void} act scrolls the log, not the person */
function move(act) {
  act();
  lastTop = log.scrollTop;
}

/** Goes to the end of the log, and stays there. */
export function scrollToEnd() {
  place = "end";
  follow();
}

/**
 * Shows a message at the top and reserves room, so that a person can read the answer from its start.
 * @param {HTMLElement} question
 * @param {HTMLElement} answer the newest answer
 */
export function scrollToStart(question, answer) {
  for (const previous of log.querySelectorAll(".latest-answer")) previous.classList.remove("latest-answer");
  log.style.setProperty("--question", `${question.offsetHeight}px`);
  answer.classList.add("latest-answer");
  move(() => { log.scrollTop = log.scrollHeight; });
  place = "start";
  look();
}

/** Shows the end, unless the person scrolled elsewhere. */
export function reveal() {
  if (place === "start") scrollToEnd();
  else follow();
}

/** Whether the end of the log is visible. */
export function isAtEnd() {
  return log.scrollHeight - log.scrollTop - log.clientHeight < NEAR;
}

/**
 * Builds content again, at the same place.
 * @param {() => void} build
 */
export function keepTop(build) {
  const top = log.scrollTop;
  build();
  move(() => { log.scrollTop = top; });
  follow();
}

/**
 * Changes content above, without moving the visible content.
 * @param {() => void} change
 */
export function keepPlace(change) {
  const fromEnd = log.scrollHeight - log.scrollTop;
  change();
  move(() => { log.scrollTop = log.scrollHeight - fromEnd; });
}
