// Ground: a button that is as good as pressed when it comes into sight.

/**
 * Presses it for who scrolls to it. Who has the focus on it, or in the list before it, goes there by the keyboard: it
 * stays where the Tab key finds it, until they press it.
 * @param {HTMLButtonElement} node
 * @param {() => void} act
 */
export function whenSeen(node, act) {
  new IntersectionObserver((seen) => {
    const { activeElement } = document, goesByKeys = [node, node.previousElementSibling];
    if (seen.at(-1)?.isIntersecting && !goesByKeys.some((place) => place?.contains(activeElement))) act();
  }).observe(node);
}
