// Ground: elements. All that is shown is made here, and data is only ever put in as text.

/** Whether a finger points: there the focus on a field opens a keyboard over the page. */
export const touched = matchMedia("(pointer: coarse)").matches;

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
 * One of the drawings at the end of `index.html`; it says nothing to those who cannot see it.
 * @param {string} name
 */
export function icon(name) {
  const space = "http://www.w3.org/2000/svg";
  const drawing = document.createElementNS(space, "svg"), use = document.createElementNS(space, "use");
  drawing.setAttribute("class", "icon");
  drawing.setAttribute("aria-hidden", "true");
  use.setAttribute("href", `#i-${name}`);
  drawing.append(use);
  return drawing;
}

/**
 * A button with a text, or with a drawing and a name.
 * @param {string} label
 * @param {(event: MouseEvent) => void} act
 * @param {{ icon?: string, className?: string, text?: boolean }} [look]
 */
export function button(label, act, look = {}) {
  const shown = look.icon && !look.text ? "" : label;
  const node = make("button", look.className ?? "", ...(look.icon ? [icon(look.icon)] : []), shown);
  node.type = "button";
  node.onclick = act;
  if (!shown) {
    node.setAttribute("aria-label", label);
    node.title = label;
  }
  return node;
}

/** A line that says, to those who listen as well, what went wrong; empty while nothing did. */
export function problemLine() {
  const line = make("p", "problem");
  line.setAttribute("role", "alert");
  return line;
}

/**
 * Lets a node have these children, and moves only those that stand elsewhere; the focus stays where it is.
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
