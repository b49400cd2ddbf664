// Change visible nodes as little as possible.

/**
 * Makes adjacent children equal to new nodes. Equal nodes stay, so that a selection stays and details stay open.
 * @param {Node} parent
 * @param {ChildNode[]} old
 * @param {ChildNode[]} next
 * @returns {ChildNode[]} the resulting children
 */
export function patch(parent, old, next) {
  const after = old.at(-1)?.nextSibling ?? null;
  const nodes = next.map((node, n) => (old[n] ? update(old[n], node) : parent.insertBefore(node, after)));
  old.slice(next.length).forEach((node) => node.remove());
  return nodes;
}

/**
 * @param {ChildNode} old
 * @param {ChildNode} next
 */
function update(old, next) {
  if (old instanceof HTMLDetailsElement && next instanceof HTMLDetailsElement) next.open = old.open;
  if (old.isEqualNode(next)) return old;
  if (old instanceof Text && next instanceof Text) rewrite(old, next.data);
  else if (old instanceof Element && next instanceof Element && old.cloneNode().isEqualNode(next.cloneNode())) {
    patch(old, [...old.childNodes], [...next.childNodes]);
  } else {
    old.replaceWith(next);
    return next;
  }
  return old;
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
