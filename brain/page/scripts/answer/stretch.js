// Answer: text as it streams. What is settled is rendered once and for good; only its open end is rendered again.

import { make } from "../ground/dom.js";
import { Fence } from "./fence.js";
import { blocksOf, levelled, mostOpen, nodesOf, takes } from "./markdown.js";
import { patch } from "./patch.js";
import { follow } from "./reading.js";
import { sure, unsure } from "./unsure.js";

/** @typedef {import("./markdown.js").Block} Block */

const HELD = 600; // ms that what may be something else is held back, so that it is not rendered as what it is not
const PATIENCE = 1500; // ms that it waits for its HTML before it is shown as it is
const SLOWEST = 100; // ms between an answer of the server and the next question, at most
const PIECE = 12_000; // characters of what came at once that are rendered at once
const FRAME = 4000; // characters that are put in as they are in one frame: more would hold the page up

const BLOCKS = "ul, ol, li, p, blockquote, div, table, tbody, tr, td, pre, pre > code, h3, h4, h5, h6";

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
  #shown = 0; // how many characters of the tail are on the screen, as HTML or as they are
  #since = 0; // when the first of what has no HTML came
  #next = 0; // when the first came of what was not sent with the question that is asked
  #asking = false;
  #notBefore = 0; // when the server may be asked again
  /** @type {Fence | null} */
  #fence = null; // of code at the end of what is shown, if it is still open
  #isLong = false; // whether that has become too large for HTML
  #parted = false; // whether a block was too large to be rendered as one
  #ended = false;
  #timer = 0;
  #wakes = 0; // when that ends
  #frame = 0;

  /** @param {string} text */
  append(text) {
    this.#whole += text;
    this.#tail += text;
    this.#since ||= performance.now();
    if (this.#asking) this.#next ||= performance.now();
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

  /** @param {number} at */
  #later(at) {
    if (this.#wakes && this.#wakes <= at) return;
    clearTimeout(this.#timer);
    this.#wakes = at;
    this.#timer = setTimeout(() => {
      this.#wakes = 0;
      this.#soon();
    }, at - performance.now());
  }

  /** The next of what has no HTML. */
  get #added() {
    return this.#tail.slice(this.#rendered, this.#rendered + FRAME);
  }

  /** @param {number} now */
  #show(now) {
    if (!this.node.isConnected) return; // another conversation was opened
    if (this.#fence && this.#isLong) this.#writeOn(this.#fence);
    if (this.#fence && (this.#isLong || this.#writeCode(this.#fence))) return;
    if (!this.#asking && this.#hasNews(now)) this.#askSoon(now);
    this.#showAdded(now);
  }

  /** Whether there is anything that the server should make HTML of. @param {number} now */
  #hasNews(now) {
    const added = this.#added, cut = this.#tail.length - this.#held(now);
    if (this.#ended || added.length === FRAME || this.#tail.slice(this.#rendered, cut).trim()) return true;
    if (added.trim()) this.#later(this.#since + HELD);
    return false;
  }

  /** How much at the end is not rendered yet: it may be something else. @param {number} now */
  #held(now) {
    if (this.#ended || now - this.#since >= HELD) return 0;
    return Math.min(unsure(this.#tail), this.#tail.length - this.#rendered);
  }

  /** @param {number} now */
  #askSoon(now) {
    if (now < this.#notBefore) this.#later(this.#notBefore);
    else this.#ask(now);
  }

  /**
   * In code, which may be long, words are what they are until a fence.
   * @param {Fence} fence
   * @returns {boolean} whether that is all there is
   */
  #writeCode(fence) {
    if (this.#asking || this.#ended) return false;
    const added = this.#added, { code, closed } = fence.read(added, false);
    this.#fresh.remove();
    if (code) this.#appendCode(code);
    this.#rendered += code.length;
    this.#shown = this.#rendered;
    this.#since = code.length < added.length ? performance.now() : 0;
    if (added.length === FRAME && code) this.#soon();
    return !closed;
  }

  /** @param {string} text */
  #appendCode(text) {
    const code = this.node.lastElementChild?.querySelector("code");
    if (code?.lastChild instanceof Text) code.lastChild.appendData(text);
    else code?.append(text);
    follow();
  }

  /** Words are shown before they are rendered, and all else when it has waited for too long. @param {number} now */
  #showAdded(now) {
    const added = this.#added, late = now - this.#since >= PATIENCE, before = this.#shown - this.#rendered;
    const length = late ? added.length : Math.max(before, sure(this.#tail.slice(0, this.#rendered), added));
    if (length < added.length) this.#later(this.#since + PATIENCE);
    const text = added.slice(0, length);
    if (!text.trim() || (this.#fresh.isConnected && this.#fresh.textContent === text)) return;
    if (!this.#fresh.isConnected) innermost(this.node).appendChild(this.#fresh);
    this.#fresh.textContent = text;
    this.#shown = this.#rendered + length;
    follow();
  }

  /** @param {number} asked */
  async #ask(asked) {
    if (!this.#tail.trim()) return this.#rewrite();
    const sent = this.#tail.slice(0, this.#cut(asked));
    const ended = this.#ended && sent.length === this.#tail.length;
    if (!ended && !sent.slice(this.#rendered).trim()) return this.#leaveAsItIs();
    this.#asking = true;
    const blocks = await blocksOf([sent], !ended, () => this.node.isConnected);
    requestAnimationFrame((now) => {
      this.#asking = false;
      this.#notBefore = now + Math.min(now - asked, SLOWEST);
      this.#fresh.remove();
      if (blocks) this.#take(blocks[0], sent.length, ended);
      else this.#takePlain(sent);
      this.#since = this.#rendered < this.#tail.length ? this.#next || asked : 0;
      this.#next = 0;
      if (!this.#fence || !this.#writeCode(this.#fence)) this.#showAdded(now);
      if (!ended || this.#tail) this.#soon();
      else this.#rewrite();
    });
  }

  /** Where what is sent ends: before its unsure end, behind a line, or behind a whole character. @param {number} now */
  #cut(now) {
    const most = Math.min(this.#rendered + PIECE, mostOpen());
    if (this.#tail.length <= most) return this.#tail.length - this.#held(now);
    const line = this.#tail.lastIndexOf("\n", most - 1) + 1;
    if (this.#tail.slice(this.#rendered, line).trim() || (line && most === mostOpen())) return line;
    return /[\ud800-\udbff]/.test(this.#tail[most - 1]) ? most - 1 : most;
  }

  /** A block has become larger than the server takes: what is shown of it stays, and another begins. */
  #leaveAsItIs() {
    this.#parted ||= !this.#fence;
    this.#isLong = Boolean(this.#fence);
    this.#fresh.remove();
    this.#settled = this.node.childNodes.length;
    this.#tail = this.#tail.slice(this.#rendered);
    this.#rendered = this.#shown = 0;
    this.#since = this.#tail ? performance.now() : 0;
    if (this.#tail) this.#soon();
    else this.#rewrite();
  }

  /** Of code whose beginning was left as it is, all up to its end is shown as it is. @param {Fence} fence */
  #writeOn(fence) {
    const now = this.#tail.slice(0, FRAME), last = now.length === this.#tail.length;
    const { code, known, closed } = fence.read(now, this.#ended && last);
    this.#appendCode(code);
    this.#tail = this.#tail.slice(known);
    if (closed) this.#fence = null;
    this.#isLong = !closed;
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
    const marks = blocks.at(-1)?.fence;
    this.#fence = marks ? new Fence(marks, shown) : null;
    this.#rendered = marks ? shown.length : shown.trimEnd().length; // HTML has no space at its end
    this.#shown = Math.max(this.#shown - end, this.#rendered);
    follow();
  }

  /** The server does not make HTML of it. @param {string} text */
  #takePlain(text) {
    patch(this.node, this.#settled, [make("span", "fresh", text)]);
    this.#settled += 1;
    this.#tail = this.#tail.slice(text.length);
    this.#shown = Math.max(this.#shown - text.length, 0);
    this.#rendered = 0;
    follow();
  }
}
