// Act when a button scrolls into view.

/**
 * Acts when a person scrolls to a button. Keyboard users, whose focus is on it or in the list before it, press it.
 * @param {HTMLButtonElement} node
 * @param {() => void} act
 */
export function onVisible(node, act) {
  new IntersectionObserver((entries) => {
    const { activeElement } = document, goesByKeys = [node, node.previousElementSibling];
    if (entries.at(-1)?.isIntersecting && !goesByKeys.some((place) => place?.contains(activeElement))) act();
  }).observe(node);
}
