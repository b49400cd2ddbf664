// Ground: a button that is as good as pressed when it comes into sight.

/**
 * Presses it for who scrolls to it. Who has the focus on it presses it when they want.
 * @param {HTMLButtonElement} node
 * @param {() => void} act
 */
export function whenSeen(node, act) {
  new IntersectionObserver((seen) => {
    if (seen.at(-1)?.isIntersecting && node !== document.activeElement) act();
  }).observe(node);
}
