// Room: text as it streams. What is settled is rendered once and for good; only its open end is rendered again.

import { make } from "./dom.js";
import { blocksOf, levelled, mostOpen, nodesOf, takes } from "./markdown.js";
import { follow } from "./reading.js";

/** @typedef {import("./markdown.js").Block} Block */

const PATIENCE = 80; // ms that new text waits for its HTML before it is shown as it is
const SLOWEST = 400; // ms between two answers of the server and the next question, at most
const PIECE = 12_000; // characters of what came at once that are rendered at once
const AGAIN = 1500; // ms after which the server is asked again when it could not answer

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
const CLOSING = /\n {0,3}(?:```|~~~)[^\n]*\n?/;
const CLOSES = /\n {0,3}[`~]*$/; // perhaps

/** A stretch of an answer's text. */
export class Stretch {
  node = make("div", "text");
  #whole = "";
  #tail = ""; // the text of the blocks that may still change
  #rendered = 0; // how much of it is shown as HTML
  #settled = 0; // how many nodes are there for good
  #level = 1; // of the last heading among them
  #fresh = make("span", "fresh"); // what has no HTML yet
  #since = 0; // when the first of that came
  #asking = false;
  #notBefore = 0; // when the server may be asked again
  #inFence = false;
  #inLongFence = false;
  #parted = false; // whether a block was too large to be rendered as one
  #ended = false;
  #timer = 0;
  #frame = 0;

  /** @param {string} text */
  append(text) {
    this.#whole += text;
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
    if (this.#inLongFence) this.#writeOn();
    if (this.#inLongFence) return;
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
    this.#appendCode(added);
    this.#rendered = this.#tail.length;
    this.#since = 0;
  }

  /** @param {string} text */
  #appendCode(text) {
    const code = this.node.lastElementChild?.querySelector("code");
    if (code?.lastChild instanceof Text) code.lastChild.appendData(text);
    else code?.append(text);
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
    if (!this.#tail.trim()) return this.#rewrite();
    const sent = this.#tail.slice(0, this.#cut());
    const ended = this.#ended && sent.length === this.#tail.length;
    if (!ended && !sent.slice(this.#rendered).trim()) return this.#leaveAsItIs();
    this.#asking = true;
    const blocks = await blocksOf([sent], !ended).catch(() => null);
    requestAnimationFrame((now) => {
      this.#asking = false;
      this.#notBefore = now + (blocks ? Math.min(now - asked, SLOWEST) : AGAIN);
      if (blocks) this.#take(blocks[0], sent.length, ended);
      this.#since = this.#rendered < this.#tail.length ? asked : 0;
      if (!blocks || !ended || this.#tail) this.#soon();
      else this.#rewrite();
    });
  }

  /** Where what is sent ends: before the end of the text, behind a line, or at least behind a whole character. */
  #cut() {
    const most = Math.min(this.#rendered + PIECE, mostOpen());
    if (this.#tail.length <= most) return this.#tail.length;
    const line = this.#tail.lastIndexOf("\n", most - 1) + 1;
    if (this.#tail.slice(this.#rendered, line).trim()) return line;
    return /[\ud800-\udbff]/.test(this.#tail[most - 1]) ? most - 1 : most;
  }

  /** A block has become larger than the server takes: what is shown of it stays, and another begins. */
  #leaveAsItIs() {
    this.#parted ||= !this.#inFence;
    this.#fresh.remove();
    this.#settled = this.node.childNodes.length;
    this.#tail = this.#tail.slice(this.#rendered);
    this.#rendered = 0;
    this.#inLongFence = this.#inFence;
    this.#inFence = false;
    if (this.#tail) this.#soon();
    else this.#rewrite();
  }

  /** Of code whose beginning was left as it is, all up to its end is shown as it is. */
  #writeOn() {
    const end = this.#tail.match(CLOSING), held = this.#ended ? 0 : this.#tail.match(CLOSES)?.[0].length ?? 0;
    this.#appendCode(this.#tail.slice(0, end ? end.index : this.#tail.length - held));
    this.#tail = this.#tail.slice(end ? (end.index ?? 0) + end[0].length : this.#tail.length - held);
    this.#inLongFence = !end;
    this.#since = 0;
  }

  /** When all is there, links are made by references that were defined behind them, and one block of what was parted. */
  async #rewrite() {
    if (!this.#ended || !(this.#parted || this.#whole.includes("]:")) || !takes([this.#whole])) return;
    const blocks = await blocksOf([this.#whole], false).catch(() => null);
    if (!blocks) return;
    const nodes = nodesOf(blocks[0]);
    levelled(nodes, 1);
    patch(this.node, 0, nodes);
    follow();
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
