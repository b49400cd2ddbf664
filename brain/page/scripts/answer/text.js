// The text of an answer. Finished blocks are rendered once; only the open end is rendered again, once per frame.

import { make } from "../base/dom.js";
import { pause } from "../base/pause.js";
import { t } from "../base/texts.js";
import { addFrame, highlightCode } from "./code.js";
import { loadFormulas } from "./formulas.js";
import { patch } from "./patch.js";
import { follow } from "./scrolling.js";
import { stablePart } from "./unfinished.js";

/**
 * @typedef {import("../base/types.js").Citation} Citation
 * @typedef {import("./markdown.js").Env} Env
 * @typedef {{ text: string, html: string, nodes: ChildNode[], level: number }} Piece `level` of its last heading
 */

const BUDGET = 8; // ms per frame
const AGAIN = 1000; // ms until the next attempt to load the libraries
const STEP = 3000, BLOCK = 10_000, CODE = 200_000; // characters: at once, per block, per code block
const STEP_MARKS = /^(?:[\p{L}\p{N} ,.]*[^\p{L}\p{N} ,.]){0,500}[\p{L}\p{N} ,.]*/u; // marks take longer
const BLOCK_MARKS = /^(?:[\p{L}\p{N} ,.]*[^\p{L}\p{N} ,.]){0,1500}[\p{L}\p{N} ,.]*/u;
const PLAIN = 20_000; // characters shown as plain text before they are rendered

/** @type {typeof import("./markdown.js") | null} */
let markdown = null;
/** @type {Set<AnswerText>} */
const waiting = new Set(); // newest last; rendered newest first
let frameNumber = 0;

/** Loads the Markdown renderer, which the first paint does not need. */
export async function loadMarkdown() {
  markdown ??= await import("./markdown.js");
}

/** @param {AnswerText} text */
function schedule(text) {
  waiting.add(text);
  frameNumber ||= requestAnimationFrame(work);
}

async function work() {
  if (!markdown) await loadMarkdown().catch(() => pause(AGAIN)); // until then the text stays plain
  const end = performance.now() + BUDGET;
  for (const text of markdown ? [...waiting].reverse() : []) {
    if (text.render(end)) waiting.delete(text);
    if (performance.now() > end) break;
  }
  follow();
  frameNumber = waiting.size ? requestAnimationFrame(work) : 0;
}

/**
 * Renders a complete text.
 * @param {string} text
 * @param {Citation[]} sources
 */
export function renderMarkdown(text, sources) {
  const shown = new AnswerText(sources);
  shown.append(text);
  shown.end();
  return shown.node;
}

/** A text that may still grow. */
export class AnswerText {
  node = make("div", "text plain");
  #tail = ""; // the text after the finished blocks
  #carriageReturn = ""; // a carriage return at the end, which may be half of a line break
  #again = ""; // lines to repeat before it, if it is the rest of a block that was cut
  #isOver = false;
  /** @type {Piece[]} */
  #pieces = [];
  #count = 0; // nodes of the finished blocks
  #redo = Infinity; // the next piece to render again, after a new reference or footnote
  #skip = 0; // frames until the open end is rendered again
  /** @type {Env} */
  #env;

  /** @param {Citation[]} sources that `[1]` can cite; the caller may add more */
  constructor(sources) {
    const source = (/** @type {string} */ id) => sources.findLast((one) => one.id === id) ?? sources[Number(id) - 1];
    this.#env = { open: false, isOver: false, length: 0, references: {}, notes: new Set(), source };
  }

  /** @param {string} text */
  append(text) {
    const lines = (this.#carriageReturn + text).replace(/\r\n|\r(?!$)/g, "\n");
    this.#carriageReturn = lines.endsWith("\r") ? "\r" : "";
    this.#tail += lines.slice(0, lines.length - this.#carriageReturn.length).replaceAll("\0", "\ufffd");
    if (this.node.matches(".plain")) this.node.textContent = this.#tail.slice(0, PLAIN).trim();
    schedule(this);
  }

  /** The text is complete. */
  end() {
    this.#isOver = this.#env.isOver = true;
    schedule(this);
  }

  /**
   * Renders until a time.
   * @param {number} end
   * @returns {boolean} whether everything is rendered
   */
  render(end) {
    if (this.node.matches(".plain")) this.node.replaceChildren();
    this.node.className = "text";
    while (this.#settle() || this.#renderAgain()) if (performance.now() > end) return false;
    if (this.#isOver) return true;
    if (this.#skip > 0) {
      this.#skip -= 1;
      return false;
    }
    const before = performance.now();
    this.#showOpen();
    this.#skip = Math.floor((performance.now() - before) / 4);
    return true;
  }

  /** Renders the next finished blocks. @returns {boolean} whether there were any */
  #settle() {
    if (!markdown || !this.#tail) return false;
    const isCode = /^\s*(?:`{3}|~{3})/.test(this.#again + this.#tail), most = this.#tail.slice(0, BLOCK);
    const [[step], [block]] = [STEP_MARKS.exec(most.slice(0, STEP)) ?? [""], BLOCK_MARKS.exec(most) ?? [""]];
    const limits = [step.length, isCode ? CODE : block.length];
    for (const limit of limits) {
      const text = this.#tail.slice(0, limit), isRest = this.#isOver && text.length === this.#tail.length;
      const length = isRest ? text.length : markdown.settledLength(this.#again + text) - this.#again.length;
      if (length > 0) return this.#add(text.slice(0, length), "");
    }
    if (this.#tail.length <= limits[1]) return false;
    const { length, again } = markdown.cutBlock(this.#again + this.#tail.slice(0, limits[1]));
    return this.#add(this.#tail.slice(0, Math.max(1, length - this.#again.length)), again);
  }

  /** The nodes of the open end. */
  get #open() {
    return [...this.node.childNodes].slice(this.#count);
  }

  /** @param {string} text @param {string} again */
  #add(text, again) {
    const source = this.#again + text, html = this.#html(source, this.#env);
    /** @type {Piece} */
    const piece = { text: source, html, nodes: [], level: this.#pieces.at(-1)?.level ?? 1 };
    piece.nodes = patch(this.node, this.#open, nodesOf(html, piece));
    this.#count = this.node.childNodes.length;
    this.#pieces.push(piece);
    this.#tail = this.#tail.slice(text.length);
    this.#again = again;
    colourAll(piece.nodes);
    if (this.#isOver && !this.#tail && this.#refers()) this.#redo = 0;
    return true;
  }

  /** Whether something may refer to what is defined after it. */
  #refers() {
    const { references, notes } = this.#env;
    return notes.size || Object.keys(references).length || this.#pieces.some((one) => one.text.includes("[^"));
  }

  /** Looks at a finished piece again. @returns {boolean} whether there was one to look at */
  #renderAgain() {
    const piece = this.#pieces[this.#redo];
    if (!piece) return false;
    this.#redo += 1;
    const html = this.#html(piece.text, this.#env);
    if (html === piece.html || !piece.nodes.length) return true;
    const nodes = nodesOf(html, { level: this.#pieces[this.#redo - 2]?.level ?? 1 });
    this.#count += nodes.length - piece.nodes.length;
    Object.assign(piece, { html, nodes: patch(this.node, piece.nodes, nodes) });
    colourAll(piece.nodes);
    return true;
  }

  #showOpen() {
    const { references, notes } = this.#env;
    const env = { ...this.#env, open: true, references: { ...references }, notes: new Set(notes) };
    const html = this.#html(this.#again + stablePart(this.#tail), env);
    patch(this.node, this.#open, nodesOf(html, { level: this.#pieces.at(-1)?.level ?? 1 }));
  }

  /** @param {string} text @param {Env} env */
  #html(text, env) {
    const html = markdown?.htmlOf(text, env) ?? "";
    if (env.lacksFormulas) {
      loadFormulas().then(() => {
        this.#redo = 0;
        schedule(this);
      }, () => {}); // formulas stay text
    }
    env.lacksFormulas = false;
    return html;
  }
}

/**
 * @param {string} html
 * @param {{ level: number }} heading the level of the last heading before; updated
 */
function nodesOf(html, heading) {
  const fragment = /** @type {typeof import("./markdown.js")} */ (markdown).clean(html);
  fragment.querySelectorAll("pre:has(> code)").forEach(addFrame);
  // The first strong letter decides on which side bullets and the first column are.
  for (const one of fragment.querySelectorAll("ul, ol, blockquote, .table")) if (one instanceof HTMLElement) one.dir = "auto";
  for (const box of fragment.querySelectorAll("input")) box.ariaLabel = t("done");
  for (const one of fragment.querySelectorAll("h3, h4, h5, h6")) { // levels without gaps, for screen readers
    heading.level = Math.min(Number(one.tagName[1]) - 1, heading.level + 1);
    one.ariaLevel = String(heading.level);
  }
  return [...fragment.children];
}

/** @param {ChildNode[]} nodes */
function colourAll(nodes) {
  for (const node of nodes) {
    if (!(node instanceof Element) || !markdown) continue;
    for (const code of node.querySelectorAll('code[class^="language-"]')) highlightCode(code, markdown.clean);
  }
}
