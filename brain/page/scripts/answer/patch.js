// Change visible nodes as little as possible.

/**
 * Makes children equal to new nodes and leaves equal ones unchanged, so a selection stays.
 * @param {Node} parent
 * @param {number} from the first of its children that may change
 * @param {ChildNode[]} next
 */
export function patch(parent, from, next) {
  const old = [...parent.childNodes].slice(from);
  next.forEach((node, n) => {
    const now = old[n];
    if (now instanceof HTMLDetailsElement && node instanceof HTMLDetailsElement) node.open = now.open;
    if (!now) parent.appendChild(node);
    else if (!now.isEqualNode(node)) update(now, node);
  });
  old.slice(next.length).forEach((node) => node.remove());
}

/**
 * @param {ChildNode} old
 * @param {ChildNode} next
 */
function update(old, next) {
  if (old instanceof Text && next instanceof Text) rewrite(old, next.data);
  else if (old instanceof Element && next instanceof Element && old.cloneNode().isEqualNode(next.cloneNode())) {
    patch(old, 0, [...next.childNodes]);
  } else old.replaceWith(next);
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
