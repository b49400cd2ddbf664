// Answer: text as it streams. What is settled is rendered once and for good; only its open end is rendered again.

import { make } from "../ground/dom.js";
import { Fence } from "./fence.js";
import { blocksOf, levelled, mostOpen, nodesOf, takes } from "./markdown.js";
import { patch } from "./patch.js";
import { follow } from "./reading.js";

/** @typedef {import("./markdown.js").Block} Block */

const PATIENCE = 80; // ms that new text waits for its HTML before it is shown as it is
const SLOWEST = 400; // ms between two answers of the server and the next question, at most
const PIECE = 12_000; // characters of what came at once that are rendered at once
const FRAME = 4000; // characters that are put in as they are in one frame: more would hold the page up

const BLOCKS = "ul, ol, li, p, blockquote, div, table, tbody, tr, td, pre, code, h3, h4, h5, h6";

/**
 * The innermost block that is still being written: there the next words will stand.
 * @param {Node} node
 * @returns {Node}
 */
function innermost(node) {
  const last = node.lastChild;
  return last instanceof Element && last.matches(BLOCKS) ? innermost(last) : node;
}

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
  #fence = ""; // what closes the code at the end of what is shown as HTML, if it is still open
  /** @type {Fence | null} */
  #longFence = null; // of code that has become too large for HTML
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

  /** The next of what has no HTML. */
  get #added() {
    return this.#tail.slice(this.#rendered, this.#rendered + FRAME);
  }

  /** @param {number} now */
  #show(now) {
    if (!this.node.isConnected) return; // another conversation was opened
    if (this.#longFence) this.#writeOn(this.#longFence);
    if (this.#longFence) return;
    const added = this.#added, more = added.length === FRAME;
    if (!this.#asking && !this.#ended && this.#fence && !added.includes(this.#fence[0])) return this.#writeCode(added);
    if (!this.#asking && (added.trim() || more || this.#ended)) this.#askSoon(now);
    if (!added.trim() || this.#shows(added)) return;
    if (now - this.#since < PATIENCE) this.#later(PATIENCE - (now - this.#since));
    else this.#showAsItIs(added);
  }

  /** @param {number} now */
  #askSoon(now) {
    if (now < this.#notBefore) this.#later(this.#notBefore - now);
    else this.#ask(now);
  }

  /** @param {string} added */
  #shows(added) {
    return this.#fresh.isConnected && this.#fresh.textContent === added;
  }

  /** In code, which may be long, words are what they are until a fence. @param {string} added */
  #writeCode(added) {
    this.#appendCode(added);
    this.#rendered += added.length;
    this.#since = 0;
    if (this.#rendered < this.#tail.length) this.#soon();
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
    if (!added.trim()) return;
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
    const blocks = await blocksOf([sent], !ended, () => this.node.isConnected);
    requestAnimationFrame((now) => {
      const shows = this.#fresh.isConnected;
      this.#asking = false;
      this.#notBefore = now + Math.min(now - asked, SLOWEST);
      this.#fresh.remove();
      if (blocks) this.#take(blocks[0], sent.length, ended);
      else this.#takePlain(sent);
      this.#since = this.#rendered < this.#tail.length ? asked : 0;
      if (shows) this.#showAsItIs(this.#added);
      if (!ended || this.#tail) this.#soon();
      else this.#rewrite();
    });
  }

  /** Where what is sent ends: before the end of the text, behind a line, or at least behind a whole character. */
  #cut() {
    const most = Math.min(this.#rendered + PIECE, mostOpen());
    if (this.#tail.length <= most) return this.#tail.length;
    const line = this.#tail.lastIndexOf("\n", most - 1) + 1;
    if (this.#tail.slice(this.#rendered, line).trim() || (line && most === mostOpen())) return line;
    return /[\ud800-\udbff]/.test(this.#tail[most - 1]) ? most - 1 : most;
  }

  /** A block has become larger than the server takes: what is shown of it stays, and another begins. */
  #leaveAsItIs() {
    this.#parted ||= !this.#fence;
    this.#longFence = this.#fence ? new Fence(this.#fence, this.#tail.slice(0, this.#rendered)) : null;
    this.#fence = "";
    this.#fresh.remove();
    this.#settled = this.node.childNodes.length;
    this.#tail = this.#tail.slice(this.#rendered);
    this.#rendered = 0;
    if (this.#tail) this.#soon();
    else this.#rewrite();
  }

  /** Of code whose beginning was left as it is, all up to its end is shown as it is. @param {Fence} fence */
  #writeOn(fence) {
    const now = this.#tail.slice(0, FRAME), last = now.length === this.#tail.length;
    const { code, known, closed } = fence.read(now, this.#ended && last);
    this.#appendCode(code);
    this.#tail = this.#tail.slice(known);
    if (closed) this.#longFence = null;
    this.#since = 0;
    if (!last) this.#soon();
  }

  /** When all is there, links are made by references defined behind them, and one block of what was parted. */
  async #rewrite() {
    if (!this.#ended || !(this.#parted || this.#whole.includes("]:")) || !takes([this.#whole])) return;
    const blocks = await blocksOf([this.#whole], false, () => this.node.isConnected);
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
    const settled = ended ? blocks : blocks.slice(0, -1), end = settled.at(-1)?.end ?? 0;
    const done = nodesOf(settled), open = nodesOf(blocks.slice(settled.length));
    this.#level = levelled(done, this.#level);
    levelled(open, this.#level);
    patch(this.node, this.#settled, [...done, ...open]);
    this.#settled += done.length;
    this.#tail = this.#tail.slice(end);
    const shown = this.#tail.slice(0, length - end);
    this.#fence = blocks.at(-1)?.fence ?? "";
    this.#rendered = this.#fence ? shown.length : shown.trimEnd().length; // HTML has no space at its end
    follow();
  }

  /** The server does not make HTML of it. @param {string} text */
  #takePlain(text) {
    patch(this.node, this.#settled, [make("span", "fresh", text)]);
    this.#settled += 1;
    this.#tail = this.#tail.slice(text.length);
    this.#rendered = 0;
    follow();
  }
}
