// Answer: changing what is shown as little as possible.

/**
 * Makes what stands in a place equal to new nodes, and leaves alone what is equal already: a selection in it stays.
 * @param {Node} parent
 * @param {number} from the first of its children that may change
 * @param {ChildNode[]} wanted
 */
export function patch(parent, from, wanted) {
  const old = [...parent.childNodes].slice(from);
  wanted.forEach((node, n) => {
    const now = old[n];
    if (now instanceof HTMLDetailsElement && node instanceof HTMLDetailsElement) node.open = now.open; // who opened it
    if (!now) parent.appendChild(node);
    else if (!now.isEqualNode(node)) become(now, node);
  });
  old.slice(wanted.length).forEach((node) => node.remove());
}

/**
 * @param {ChildNode} old
 * @param {ChildNode} wanted
 */
function become(old, wanted) {
  if (old instanceof Text && wanted instanceof Text) rewrite(old, wanted.data);
  else if (old instanceof Element && wanted instanceof Element && old.cloneNode().isEqualNode(wanted.cloneNode())) {
    patch(old, 0, [...wanted.childNodes]);
  } else old.replaceWith(wanted);
}

/**
 * @param {Text} node
 * @param {string} text
 */
function rewrite(node, text) {
  let same = 0;
  while (same < node.length && node.data[same] === text[same]) same += 1;
  node.replaceData(same, node.length - same, text.slice(same));
}
