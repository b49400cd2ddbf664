// Markdown to nodes. Text is untrusted: HTML in it stays text, and DOMPurify allows only what this file lists.

import DOMPurify from "../../vendor/dompurify/purify.es.mjs";
import MarkdownIt from "../../vendor/markdown-it/markdown-it.esm.min.mjs";
import { addContainers } from "./containers.js";
import { addFormulas } from "./formulas.js";
import { isAddress, showHosts } from "./links.js";
import { completeMarks } from "./unfinished.js";

/** @typedef {import("../../vendor/markdown-it/markdown-it.esm.min.mjs").Token} Token */
/**
 * The state that the blocks of one text share.
 * @typedef {object} Env
 * @property {boolean} open whether more text may follow this part
 * @property {boolean} isOver whether the text is complete
 * @property {number} length of the part
 * @property {Record<string, any>} references link definitions of earlier parts
 * @property {Set<string>} notes labels of the footnotes so far
 * @property {(label: string) => { title?: string, url?: string } | undefined} source the source that `[label]` cites
 * @property {boolean} [lacksFormulas] set when formulas cannot be drawn yet
 * @property {number} [room] characters that URLs may still take
 * @typedef {(tokens: Token[], n: number, options: unknown, env: Env) => string} Rule renders a token as HTML
 */

const NESTING = 40; // levels; markdown-it drops deeper content
const MISSING_CELLS = 2000; // per table; each that markdown-it adds costs more than its row
const TURNS = /[\u202a-\u202e\u2066-\u2069]/g; // characters that reverse the order of others
const ENDED = /^(?:paragraph|heading|blockquote|table|details|footnote)_open$|^(?:hr|fence)$/; // ended by an empty line
const ELEMENT = /^<(?:br *\/?|(sub|sup|kbd))>/i; // HTML that Markdown has no mark for
const ELEMENT_LENGTH = 1000; // characters
const WIDE = /[\p{scx=Han}\p{scx=Hira}\p{scx=Kana}\p{scx=Hang}\p{scx=Bopo}\uff01-\uffee]/u; // written without spaces
const LANGUAGE = /^[A-Za-z0-9][A-Za-z0-9+#._-]{0,31}(?!\S)/;
const TAGS = (
  "#text p h3 h4 h5 h6 blockquote hr ul ol li input pre code span div table thead tbody tr th td a strong em s "
  + "br sub sup kbd button details summary math mrow mi mn mo ms mtext mspace mfrac msqrt mroot mstyle mphantom menclose "
  + "mpadded msub msup msubsup munder mover munderover mmultiscripts mprescripts mtable mtr mtd"
).split(" ");
const ATTRIBUTES = (
  "start class disabled checked type open title data-note display mathvariant stretchy fence form separator "
  + "largeop movablelimits symmetric minsize maxsize lspace rspace linethickness accent accentunder displaystyle "
  + "scriptlevel columnalign width"
).split(" ");
const OWN_CLASS = /^(?:table|formula|footnote|note|place|task|center|right|left|language-[\w+#.-]+)$/;
const LIBRARY_CLASS = /^(?:hljs-[\w-]+|[a-z]+_|tml-[\w-]+|upstrike|downstrike|sout)$/;
const CLEANING = /** @type {const} */ ({
  RETURN_DOM_FRAGMENT: true, ALLOW_DATA_ATTR: false, ALLOW_ARIA_ATTR: false,
  ALLOWED_URI_REGEXP: /^(?:https?:\/\/|mailto:)/i,
});

DOMPurify.addHook("uponSanitizeAttribute", (_, data) => {
  const isKnown = (/** @type {string} */ name) => OWN_CLASS.test(name) || LIBRARY_CLASS.test(name);
  if (data.attrName === "class") data.attrValue = data.attrValue.split(" ").filter(isKnown).join(" ");
});
DOMPurify.addHook("afterSanitizeAttributes", (node) => {
  if (node.nodeName === "A") Object.assign(node, { target: "_blank", rel: "noopener noreferrer nofollow" });
});

/** Converts HTML to harmless nodes. @param {string} html */
export function clean(html) {
  const allowed = { ALLOWED_TAGS: TAGS, ALLOWED_ATTR: ["href", ...ATTRIBUTES], ADD_URI_SAFE_ATTR: ATTRIBUTES };
  return DOMPurify.sanitize(html, { ...CLEANING, ...allowed });
}

clean(""); // creates the page's only Trusted Types policy

const md = new MarkdownIt({ linkify: true, breaks: true, maxNesting: NESTING });
const { rules } = md.renderer, { escapeHtml } = md.utils, { ruler } = md.block;
const tableRule = /** @type {any} */ (ruler).__rules__.find((/** @type {any} */ rule) => rule.name === "table").fn;
const code = (/** @type {string} */ text) => escapeHtml(text.replace(TURNS, "\ufffd"));

md.inline.State = class extends md.inline.State {
  /**
   * Emphasis beside Chinese, Japanese or Korean text, whose punctuation has no spaces around it: only spaces count.
   * @param {number} start @param {boolean} canSplitWord
   */
  scanDelims(start, canSplitWord) {
    const found = super.scanDelims(start, canSplitWord), { isMdAsciiPunct, isPunctChar, isWhiteSpace } = md.utils;
    const [before = " "] = [...this.src.slice(Math.max(start - 2, 0), start)].slice(-1);
    const [after = " "] = this.src.slice(start + found.length, start + found.length + 2);
    if (!WIDE.test(before) && !WIDE.test(after)) return found;
    const isMark = (/** @type {string} */ one) => isMdAsciiPunct(one.charCodeAt(0)) || isPunctChar(one);
    const left = !isWhiteSpace(after.charCodeAt(0)), right = !isWhiteSpace(before.charCodeAt(0));
    const can_open = left && (canSplitWord || !right || isMark(before));
    return { ...found, can_open, can_close: right && (canSplitWord || !left || isMark(after)) };
  }
};
md.validateLink = isAddress;
md.normalizeLinkText = (url) => url; // a decoded URL could look like another one
md.linkify.set({ fuzzyLink: false, fuzzyEmail: false }).add("//", null).add("ftp:", null); // README.md is not a host
ruler.at("table", table, { alt: ["paragraph", "reference"] });
md.inline.ruler.after("link", "citation", citation);
md.inline.ruler.before("html_inline", "element", element);
md.core.ruler.before("inline", "close_marks", closeMarks);
md.core.ruler.push("finish", finish);
addFormulas(md);
addContainers(md);

rules.text = (tokens, n) => escapeHtml(tokens[n].content.replace(TURNS, ""));
rules.code_inline = (tokens, n) => `<code>${code(tokens[n].content)}</code>`;
rules.code_block = (tokens, n) => `<pre><code>${code(tokens[n].content)}</code></pre>\n`;
rules.fence = (tokens, n) => {
  const [language] = LANGUAGE.exec(tokens[n].info.trim()) ?? [""];
  const languageClass = language && ` class="language-${language.toLowerCase()}"`;
  return `<pre><code${languageClass}>${code(tokens[n].content)}</code></pre>\n`;
};
rules.table_open = () => '<div class="table"><table>';
rules.table_close = () => "</table></div>\n";
rules.place = (tokens, n) => ` <span class="place">(${escapeHtml(tokens[n].content)})</span>`;
rules.task = (tokens, n) => `<input type="checkbox" disabled${tokens[n].markup === " " ? "" : " checked"}>`;

/** @param {any} state @param {number} first @param {number} last @param {boolean} silent */
function table(state, first, last, silent) {
  if (!tableRule(state, first, last, true)) return false;
  if (silent) return true;
  const { src, bMarks, eMarks } = state;
  const cells = (/** @type {number} */ line) => src.slice(bMarks[line], eMarks[line]).split("|").length;
  let room = MISSING_CELLS;
  for (let line = first + 2; line < last && !state.isEmpty(line); line += 1) {
    room -= Math.max(0, cells(first) - cells(line) - 2);
  }
  return room >= 0 && tableRule(state, first, last, false);
}

/** `[1]` opens the source that it cites. @param {any} state @param {boolean} silent */
function citation(state, silent) {
  const [match, label] = /^\[([^[\]\n]{1,100})\]/.exec(state.src.slice(state.pos, state.pos + 102)) ?? [];
  const source = match && !silent && !state.linkLevel ? state.env.source(label) : null; // silent: perhaps in a link
  if (!match || !source?.url || !isAddress(source.url)) return false;
  const attrs = [["href", source.url], ["title", source.title || source.url]];
  Object.assign(state.push("link_open", "a", 1), { markup: "citation", attrs });
  state.push("text", "", 0).content = match;
  state.push("link_close", "a", -1);
  state.pos += match.length;
  return true;
}

/** Line breaks, subscripts, superscripts and keys. @param {any} state @param {boolean} silent */
function element(state, silent) {
  const { pos, posMax, src } = state, [opening, tag] = ELEMENT.exec(src.slice(pos, pos + 8)) ?? [];
  if (!opening) return false;
  if (!tag) {
    if (!silent) state.push("hardbreak", "br", 0);
    state.pos += opening.length;
    return true;
  }
  const name = tag.toLowerCase(), start = pos + opening.length;
  const length = src.slice(start, Math.min(start + ELEMENT_LENGTH, posMax)).toLowerCase().indexOf(`</${name}>`);
  if (length < 0) return false;
  if (!silent) {
    state.push("element_open", name, 1);
    Object.assign(state, { pos: start, posMax: start + length });
    state.md.inline.tokenize(state);
    state.push("element_close", name, -1);
  }
  Object.assign(state, { pos: start + length + `</${name}>`.length, posMax });
  return true;
}

/** Closes open marks in the last line of a text that may grow. @param {any} state */
function closeMarks(state) {
  if (!state.env.open || /\n[ \t]*\n$/.test(state.src)) return;
  const last = state.tokens.findLast((/** @type {Token} */ { nesting, content }) => nesting === 0 && content);
  if (last?.type === "inline") last.content = completeMarks(last.content);
}

/** Lowers headings, marks tasks, removes inline styles, and shows hosts of links. @param {any} state */
function finish({ tokens, env, Token }) {
  /** @type {import("./links.js").Make} */
  const make = (type, tag, nesting, content, attrs) =>
    Object.assign(new Token(type, tag, nesting), { content, attrs: attrs ?? null });
  tokens.forEach((/** @type {Token} */ one, /** @type {number} */ n) => {
    if (one.type.startsWith("heading_")) one.tag = `h${Math.min(Number(one.tag[1]) + 2, 6)}`;
    if (one.attrs && one.tag[0] === "t") one.attrs = [["class", String(one.attrs[0][1]).slice("text-align:".length)]];
    const [first] = one.children ?? [], task = /^\[([ xX])\] /.exec(first?.type === "text" ? first.content : "");
    if (task && tokens[n - 2]?.type === "list_item_open") {
      first.content = first.content.slice(3);
      one.children?.unshift(Object.assign(make("task", "", 0, ""), { markup: task[1] }));
      tokens[n - 2].attrs = [["class", "task"]];
    }
    if (one.children?.length) one.children = showHosts(one.children, env, make);
  });
}

/** The block tokens, without inline tokens. @param {string} text */
function blocksOf(text) {
  /** @type {Token[]} */
  const tokens = [];
  md.block.parse(text, md, { notes: new Set(), open: true }, tokens);
  return tokens;
}

/**
 * The length of the part that following text cannot change.
 * @param {string} text
 */
export function settledLength(text) {
  const blocks = blocksOf(text).filter(({ level, nesting }) => level === 0 && nesting >= 0);
  const last = blocks.at(-1), before = blocks.at(-2);
  if (!last?.map || !before?.map) return 0;
  const lines = text.split("\n"), [first, end] = last.map;
  const needed = { table_open: first + 2, formula: last.hidden ? Infinity : end }[last.type] ?? first + 1;
  const isKnown = lines.length > needed; // else it may belong to the block before
  const isEnded = !lines[first - 1].trim() && ENDED.test(before.type);
  return lengthOf(lines, isKnown || isEnded ? first : before.map[0]);
}

/** The length of the first lines. @param {string[]} lines @param {number} count */
function lengthOf(lines, count) {
  return lines.slice(0, count).reduce((sum, line) => sum + line.length + 1, 0);
}

/**
 * Where to cut a block that is too long to render at once, and the lines to repeat before the rest.
 * @param {string} text
 */
export function cutBlock(text) {
  const tokens = blocksOf(text), lines = text.split("\n");
  const fullLength = text.length - (/[\ud800-\udbff]$/.test(text) ? 1 : 0);
  const repeated = { fence: 1, table_open: 2 }[tokens[0]?.type] ?? 0;
  const item = tokens.findLast(({ type, level }) => type === "list_item_open" && level === 1);
  const line = item?.map?.[0] || lines.length - 1, isLine = line > repeated;
  const length = isLine ? lengthOf(lines, line) : text.lastIndexOf(" ") + 1 || fullLength;
  return { length, again: isLine && repeated ? `${lines.slice(0, repeated).join("\n")}\n` : "" };
}

/**
 * @param {string} text whole blocks
 * @param {Env} env
 */
export function htmlOf(text, env) {
  Object.assign(env, { length: text.length, room: undefined });
  const source = text.replace(/(?<=SPECIALIST_REQUEST)［/gi, "["), lines = source.split("\n"); // no call here
  const tokens = md.parse(source, env);
  let html = "", start = 0;
  tokens.forEach(({ level, nesting, map }, n) => {
    if (level || nesting === 1) return;
    const block = tokens.slice(start, n + 1), [first, last] = block[0].map ?? map ?? [0, 0];
    const isDeep = block.some((one) => [one, ...one.children ?? []].some(({ level }) => level >= NESTING - 2));
    if (isDeep) html += `<pre>${code(lines.slice(first, last).join("\n"))}</pre>\n`;
    else html += md.renderer.render(block, md.options, env);
    start = n + 1;
  });
  return html;
}
