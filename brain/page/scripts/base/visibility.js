// Act when a button scrolls into sight.

/**
 * Acts when a person scrolls to a button. A keyboard user, with the focus on it or in the list before it, has
 * to press it.
 * @param {HTMLButtonElement} node
 * @param {() => void} act
 */
export function onVisible(node, act) {
  new IntersectionObserver((entries) => {
    const { activeElement } = document, goesByKeys = [node, node.previousElementSibling];
    if (entries.at(-1)?.isIntersecting && !goesByKeys.some((place) => place?.contains(activeElement))) act();
  }).observe(node);
}
