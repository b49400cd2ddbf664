// Make and find elements. Data is only ever inserted as text.

/** On a touch screen, a focused field opens a keyboard over the page. */
export const hasTouchScreen = matchMedia("(pointer: coarse)").matches;

/**
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T} tag
 * @param {string} [className]
 * @param {...(Node | string)} children
 * @returns {HTMLElementTagNameMap[T]}
 */
export function make(tag, className = "", ...children) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  node.append(...children);
  return node;
}

/**
 * An element of `index.html`.
 * @template {HTMLElement} T
 * @param {string} id
 * @param {new () => T} kind
 * @returns {T}
 */
export function find(id, kind) {
  const node = document.getElementById(id);
  if (!(node instanceof kind)) throw new Error(`#${id} is not there`);
  return node;
}

/**
 * One of the icons at the end of `index.html`, hidden from screen readers.
 * @param {string} name
 */
export function makeIcon(name) {
  const space = "http://www.w3.org/2000/svg";
  const drawing = document.createElementNS(space, "svg"), use = document.createElementNS(space, "use");
  drawing.setAttribute("class", "icon");
  drawing.setAttribute("aria-hidden", "true");
  use.setAttribute("href", `#i-${name}`);
  drawing.append(use);
  return drawing;
}

/**
 * A button with a text, or with an icon and an accessible name.
 * @param {string} label
 * @param {(event: MouseEvent) => void} act
 * @param {{ icon?: string, className?: string, text?: boolean }} [look]
 */
export function makeButton(label, act, look = {}) {
  const shown = look.icon && !look.text ? "" : label;
  const node = make("button", look.className ?? "", ...(look.icon ? [makeIcon(look.icon)] : []), shown);
  node.type = "button";
  node.onclick = act;
  if (!shown) {
    node.setAttribute("aria-label", label);
    node.title = label;
  }
  return node;
}

/** An empty line for a problem, which screen readers announce. */
export function makeProblemLine() {
  const line = make("p", "problem");
  line.setAttribute("role", "alert");
  return line;
}

/**
 * Replaces the children of a node, but moves only those whose position changed, so that the focus stays.
 * @param {Element} parent
 * @param {Element[]} children
 */
export function arrange(parent, children) {
  const focused = document.activeElement;
  children.forEach((child, n) => {
    if (parent.children[n] !== child) parent.insertBefore(child, parent.children[n] ?? null);
  });
  while (parent.children.length > children.length) parent.lastElementChild?.remove();
  if (focused instanceof HTMLElement && focused !== document.activeElement && focused.isConnected) focused.focus();
}
