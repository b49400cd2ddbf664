// Room: text as it streams. The server makes HTML of Markdown, block by block; it is put in here, and nowhere else.

import { copy } from "./copying.js";
import { icon, make } from "./dom.js";
import { follow, log } from "./reading.js";
import { request } from "./server.js";
import { t } from "./texts.js";

const PATIENCE = 80; // ms that new text waits for its HTML before it is shown as it is
const SLOWEST = 400; // ms between two answers of the server and the next question, at most
const AGAIN = 1500; // ms after which the server is asked again when it could not answer
const PIECE = 12_000; // characters of what came at once that are rendered at once
const LARGEST = 100_000; // characters that the server takes for one text
const AT_ONCE = 24; // texts in one request, and characters
const CHARACTERS = 60_000;

/** @typedef {{ html: string, end: number }} Block `end` in UTF-16 units of the text */

/** @type {{ createHTML: (html: string) => any }} */
const policy = /** @type {any} */ (window).trustedTypes?.createPolicy("brain", { createHTML: (/** @type {string} */ html) => html })
  ?? { createHTML: (/** @type {string} */ html) => html };

/**
 * @param {string[]} texts
 * @param {boolean} open whether the last block of each is still being written
 * @returns {Promise<Block[][]>}
 */
async function blocksOf(texts, open) {
  return (await request("POST", "page/markdown", { texts, open })).texts;
}

/**
 * @param {Block[]} blocks
 * @returns {Element[]}
 */
function nodesOf(blocks) {
  const template = document.createElement("template");
  template.innerHTML = policy.createHTML(blocks.map(({ html }) => html.trim()).join(""));
  template.content.querySelectorAll("pre").forEach(frame);
  return [...template.content.children]; // without the lines between them
}

/**
 * Says the levels of headings without gaps, as those who go from heading to heading expect; the page's own is the first.
 * @param {ChildNode[]} nodes
 * @param {number} level of the heading before
 * @returns {number} of the last one
 */
function levelled(nodes, level) {
  for (const node of nodes) {
    if (!(node instanceof Element)) continue;
    for (const heading of [node, ...node.querySelectorAll("h3, h4, h5, h6")].filter((one) => /^H\d$/.test(one.tagName))) {
      level = Math.min(Number(heading.tagName[1]) - 1, level + 1);
      heading.ariaLevel = String(level);
    }
  }
  return level;
}

/** Code gets a line above it: its language, and a button that copies it. @param {HTMLElement} pre */
function frame(pre) {
  const language = pre.querySelector("code")?.className.match(/language-([\w+#.-]+)/)?.[1] ?? "";
  const copies = make("button", "quiet copy-code", icon("copy"), make("span", "", t("copy")));
  copies.type = "button";
  copies.setAttribute("aria-label", t("copyCode"));
  pre.tabIndex = 0;
  const around = make("div", "code", make("div", "code-head", make("span", "small", language), copies));
  pre.replaceWith(around);
  around.append(pre);
}

log.addEventListener("click", ({ target }) => {
  const clicked = target instanceof Element && target.closest(".copy-code");
  if (clicked) copy(clicked, clicked.closest(".code")?.querySelector("pre")?.textContent ?? "");
});

/**
 * Makes what stands in a place equal to new nodes, and leaves alone what is equal already: a selection in it stays.
 * @param {Node} parent
 * @param {number} from the first of its children that may change
 * @param {ChildNode[]} wanted
 */
function patch(parent, from, wanted) {
  const old = [...parent.childNodes].slice(from);
  wanted.forEach((node, n) => {
    const place = old[n];
    if (!place) parent.appendChild(node);
    else if (!place.isEqualNode(node)) become(place, node);
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

/** The innermost block that is still being written: there the next words will stand. @param {Node} node @returns {Node} */
function innermost(node) {
  const last = node.lastChild;
  return last instanceof Element && last.matches("ul, ol, li, p, blockquote, div, table, tbody, tr, td, pre, code, h3, h4, h5, h6")
    ? innermost(last) : node;
}

const FENCE = /^(?:[ \t]*\n)* {0,3}(?:```|~~~)[^\n]*\n/;
const CLOSED = /\n {0,3}(?:```|~~~)/;

/** A stretch of an answer's text. What is settled is rendered once and for good; only its open end is rendered again. */
export class Stretch {
  node = make("div", "text");
  #tail = ""; // the text of the blocks that may still change
  #rendered = 0; // how much of it is shown as HTML
  #settled = 0; // how many nodes are there for good
  #level = 1; // of the last heading among them
  #fresh = make("span", "fresh"); // what has no HTML yet
  #since = 0; // when the first of that came
  #asking = false;
  #notBefore = 0; // when the server may be asked again
  #inFence = false;
  #ended = false;
  #timer = 0;
  #frame = 0;

  /** @param {string} text */
  append(text) {
    this.#tail += text;
    this.#since ||= performance.now();
    this.#soon();
  }

  /** Nothing follows. */
  end() {
    this.#ended = true;
    this.#soon();
  }

  #soon() {
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0;
      this.#show(performance.now());
    });
  }

  /** @param {number} ms */
  #later(ms) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#soon(), ms);
  }

  /** @param {number} now */
  #show(now) {
    if (!this.node.isConnected) return; // another conversation was opened
    const added = this.#tail.slice(this.#rendered);
    if (!this.#asking && !this.#ended && this.#inFence && !/[`~]/.test(added)) return this.#writeCode(added);
    if (!this.#asking && now >= this.#notBefore && (added.trim() || this.#ended)) this.#ask(now);
    if (!added.trim() || this.#shows(added)) return;
    if (now - this.#since < PATIENCE) this.#later(PATIENCE - (now - this.#since));
    else this.#showAsItIs(added);
    if (!this.#asking) this.#later(this.#notBefore - now);
  }

  /** @param {string} added */
  #shows(added) {
    return this.#fresh.isConnected && this.#fresh.textContent === added;
  }

  /** In code, which may be long, words are what they are until a fence. @param {string} added */
  #writeCode(added) {
    const code = this.node.lastElementChild?.querySelector("code");
    if (code?.lastChild instanceof Text) code.lastChild.appendData(added);
    else code?.append(added);
    this.#rendered = this.#tail.length;
    this.#since = 0;
    follow();
  }

  /** @param {string} added */
  #showAsItIs(added) {
    if (!this.#fresh.isConnected) innermost(this.node).appendChild(this.#fresh);
    this.#fresh.textContent = added;
    follow();
  }

  /** @param {number} asked */
  async #ask(asked) {
    if (!this.#tail.trim()) return;
    const sent = this.#tail.slice(0, this.#rendered + PIECE), whole = sent.length === this.#tail.length;
    const ended = whole ? this.#ended : sent.length >= LARGEST;
    this.#asking = true;
    const blocks = await blocksOf([sent], !ended).catch(() => null);
    requestAnimationFrame((now) => {
      this.#asking = false;
      this.#notBefore = now + (blocks ? Math.min(now - asked, SLOWEST) : AGAIN);
      if (blocks) this.#take(blocks[0], sent.length, ended);
      this.#since = this.#rendered < this.#tail.length ? asked : 0;
      if (!blocks || !ended || this.#tail) this.#soon();
    });
  }

  /**
   * @param {Block[]} blocks
   * @param {number} length of the text that was sent
   * @param {boolean} ended
   */
  #take(blocks, length, ended) {
    this.#fresh.remove();
    const settled = ended ? blocks : blocks.slice(0, -1), end = settled.at(-1)?.end ?? 0;
    const done = nodesOf(settled), open = nodesOf(blocks.slice(settled.length));
    this.#level = levelled(done, this.#level);
    levelled(open, this.#level);
    patch(this.node, this.#settled, [...done, ...open]);
    this.#settled += done.length;
    this.#tail = this.#tail.slice(end);
    const shown = this.#tail.slice(0, length - end);
    this.#inFence = FENCE.test(shown) && !CLOSED.test(shown.replace(FENCE, "\n"));
    this.#rendered = this.#inFence ? shown.length : shown.trimEnd().length; // HTML has no space at its end
    follow();
  }
}

/** @type {{ text: string, node: HTMLElement }[]} */
let waiting = [];
let rendering = false;

/**
 * A text that is whole. It is shown as it is until its HTML comes; those that were asked for last come first.
 * @param {string} text
 */
export function written(text) {
  const node = make("div", "text plain", text.trim());
  waiting.push({ text, node });
  if (!rendering) {
    rendering = true;
    queueMicrotask(renderAll);
  }
  return node;
}

async function renderAll() {
  while (waiting.length) {
    const some = newest();
    const blocks = await blocksOf(some.map(({ text }) => text), false).catch(() => null);
    if (blocks) some.forEach(({ node }, n) => put(node, blocks[n]));
    follow();
  }
  rendering = false;
}

/** As many as go into one request, of those whose conversation is still open. */
function newest() {
  const some = [];
  let characters = 0;
  while (waiting.length && some.length < AT_ONCE && characters < CHARACTERS) {
    const one = /** @type {{ text: string, node: HTMLElement }} */ (waiting.pop());
    some.push(one);
    characters += one.text.length;
  }
  return some;
}

/**
 * @param {HTMLElement} node
 * @param {Block[]} blocks
 */
function put(node, blocks) {
  const nodes = nodesOf(blocks);
  levelled(nodes, 1);
  node.className = "text";
  node.replaceChildren(...nodes);
}
