// One clock for all times that grow on the page.

const TICK = 100; // ms
/** @type {Set<() => void>} */
const ticking = new Set();
let clock = 0;

/** Calls a function regularly; returns how to stop it. @param {() => void} tick */
export function startTicking(tick) {
  ticking.add(tick);
  clock ||= setInterval(() => ticking.forEach((each) => each()), TICK);
  return () => {
    ticking.delete(tick);
    if (ticking.size) return;
    clearInterval(clock);
    clock = 0;
  };
}
