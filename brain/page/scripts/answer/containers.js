// Footnotes, and `<details>` with `<summary>`, the only HTML that Markdown can use.

import { log } from "./scrolling.js";

/** @typedef {import("./markdown.js").Rule} Rule */

const NOTE = /^\[\^([^\]\s]{1,40})\]:[ \t]*(.*)$/, REFERENCE = /\[\^([^\]\s]{1,40})\](?!:)/y;
const DETAILS = /^<details( open)?>(.*)$/i, END = /<\/details>\s*$/i;
const SUMMARY = /^\s*<summary>(.*?)(?:<\/summary>(.*))?$/i;

/** @param {any} md a parser */
export function addContainers(md) {
  md.block.ruler.before("reference", "footnote", footnote, { alt: ["paragraph"] });
  md.block.ruler.before("paragraph", "details", details, { alt: ["paragraph", "blockquote", "list"] });
  md.inline.ruler.before("link", "footnote", reference);
  const { rules } = md.renderer, { escapeHtml } = md.utils;
  rules.footnote_open = /** @type {Rule} */ (tokens, n) => {
    const label = escapeHtml(tokens[n].info);
    return `<div class="footnote" data-note="${label}"><sup>${label}</sup> `;
  };
  rules.footnote = /** @type {Rule} */ (tokens, n, _, env) => {
    const label = escapeHtml(tokens[n].info), isNote = !env.isOver || env.notes.has(tokens[n].info);
    if (!isNote) return `[^${label}]`;
    return `<sup><button type="button" class="note" data-note="${label}">${label}</button></sup>`;
  };
}

/** @param {any} state @param {number} line */
function lineOf(state, line) {
  return state.src.slice(state.bMarks[line] + state.tShift[line], state.eMarks[line]);
}

/** @param {any} state @param {number} first @param {number} last @param {boolean} silent */
function footnote(state, first, last, silent) {
  const [, label, text] = NOTE.exec(lineOf(state, first)) ?? [];
  if (!label || state.sCount[first] - state.blkIndent >= 4) return false;
  if (silent) return true;
  const lines = [text];
  let line = first + 1;
  for (; line < last && !state.isEmpty(line) && !NOTE.test(lineOf(state, line)); line += 1) {
    lines.push(lineOf(state, line));
  }
  Object.assign(state.push("footnote_open", "div", 1), { info: label, map: [first, line], block: true });
  Object.assign(state.push("inline", "", 0), { content: lines.join("\n"), map: [first, line], children: [] });
  state.push("footnote_close", "div", -1).block = true;
  state.env.notes.add(label);
  state.line = line;
  return true;
}

/** @param {any} state @param {boolean} silent */
function reference(state, silent) {
  REFERENCE.lastIndex = state.pos;
  const found = silent ? null : REFERENCE.exec(state.src); // silent: it may be in a link
  if (!found) return false;
  state.push("footnote", "", 0).info = found[1];
  state.pos += found[0].length;
  return true;
}

/**
 * Ends at its closing tag, or at the end of the block around it.
 * @param {any} state
 * @param {number} first
 * @param {number} last
 * @param {boolean} silent
 */
function details(state, first, last, silent) {
  const [opening, open, rest = ""] = DETAILS.exec(lineOf(state, first)) ?? [];
  if (!opening || state.sCount[first] - state.blkIndent >= 4) return false;
  if (silent) return true;
  let end = first, level = 0;
  for (; end < last && (end === first || state.isEmpty(end) || state.sCount[end] >= state.blkIndent); end += 1) {
    const line = lineOf(state, end), closing = END.exec(line);
    level += (DETAILS.test(line) ? 1 : 0) - (closing ? 1 : 0);
    if (level || !closing) continue;
    state.eMarks[end] = state.bMarks[end] + state.tShift[end] + closing.index;
    end += 1;
    break;
  }
  let line = first + 1, head = rest.replace(END, "");
  while (!head.trim() && line < end && state.isEmpty(line)) line += 1;
  const [, summary, behind] = SUMMARY.exec(head.trim() || line >= end ? head : lineOf(state, line)) ?? [];
  if (summary !== undefined && !head.trim()) line += 1;
  /** @param {string} name @param {string} tag @param {string} content */
  const add = (name, tag, content) => {
    state.push(`${name}_open`, tag, 1);
    Object.assign(state.push("inline", "", 0), { content: content.trim(), map: [first, line], children: [] });
    state.push(`${name}_close`, tag, -1).block = true;
  };
  const attrs = open ? [["open", ""]] : null;
  Object.assign(state.push("details_open", "details", 1), { map: [first, end], block: true, attrs });
  if (summary !== undefined) add("summary", "summary", summary);
  if (summary !== undefined) head = behind ?? "";
  if (head.trim()) add("paragraph", "p", head);
  const { parentType, lineMax } = state;
  Object.assign(state, { parentType: "details", lineMax: end });
  if (line < end) state.md.block.tokenize(state, line, end);
  Object.assign(state, { parentType, lineMax, line: end });
  state.push("details_close", "details", -1).block = true;
  return true;
}

log.addEventListener("click", ({ target }) => {
  const label = target instanceof HTMLElement && target.matches("button.note") ? target.dataset.note : undefined;
  if (!label || !(target instanceof HTMLElement)) return;
  const notes = target.closest("article, .box")?.querySelectorAll(".footnote") ?? [];
  const note = [...notes].find((one) => one instanceof HTMLElement && one.dataset.note === label);
  if (!(note instanceof HTMLElement)) return;
  note.tabIndex = -1;
  note.focus();
});
