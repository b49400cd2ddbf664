// The end of a growing text: hold back what may still change, and close open marks.

import { MATHS } from "./formulas.js";

const LAST_LINE = new RegExp(`^[ \\t>]*(?:${[
  "(?:[-+*]|\\d{1,9}[.)]?)[ \\t]*(?:\\[.?\\]?)?[ \\t]*", // a list item, perhaps a task
  "[-=*_]+|#{1,6}[ \\t]*|[`~]{1,2}|[`~]{3,}[^`]*", // a heading, a line, code and its language
  "\\[[^\\]]*\\]:.*|\\[\\^[^\\]]*\\]?|</?[a-z]*[^<>]*|<(?:details|summary)[^<]*>?", // a definition, an element
].join("|")})$`, "i");
const MARK = /\\[([]|\\[^]|`+|\${1,2}|\*+|_+|~{1,2}|!?\[|<\/?(?:sub|sup|kbd)>|<(?:[a-z/][^\s>]*)?$|\\$/gi;

/** The part of an open text whose blocks are known. @param {string} text */
export function stablePart(text) {
  const end = text.lastIndexOf("\n") + 1, line = text.slice(end), before = text.slice(0, end).trimEnd().split("\n");
  if (line.trim() && LAST_LINE.test(line)) return text.slice(0, end);
  const isRow = (/** @type {string | undefined} */ one) => /^[ \t>]*\|/.test(one ?? "");
  if (isRow(line) && (!isRow(before.at(-1)) || text.endsWith("\n\n", end))) return text.slice(0, end); // a table's head
  if (!/^[ \t>|:-]*$/.test(line) || !isRow(before.at(-1)) || isRow(before.at(-2))) return text;
  return text.slice(0, text.slice(0, end).trimEnd().lastIndexOf("\n") + 1);
}

/**
 * Closes bold, code, links, formulas and elements at the end of a line that is still being written.
 * @param {string} text
 * @returns {string}
 */
export function completeMarks(text) {
  /** @type {string[]} */
  const open = [];
  let tail = "";
  MARK.lastIndex = 0;
  for (let found = MARK.exec(text); found; found = MARK.exec(text)) {
    const [mark] = found, at = found.index, rest = text.slice(MARK.lastIndex);
    if (mark[0] === "<" && mark.endsWith(">")) {
      const closing = mark.replace(/^<\/?/, "</").toLowerCase();
      if (mark[1] !== "/") open.push(closing);
      else if (open.includes(closing)) open.length = open.lastIndexOf(closing);
    } else if (mark === "\\" || mark[0] === "<") text = text.slice(0, at);
    else if (mark.endsWith("[") && mark[0] !== "\\") {
      const [, label] = /^([^[\]\n]*)(?:\](?:\([^()\s]*)?)?$/.exec(rest) ?? [];
      if (/^(?:\^[^\]\s]*|\d{0,3}\]?)$/.test(rest)) text = text.slice(0, at); // perhaps a footnote or a citation
      else if (label !== undefined && !/[\w\])]/.test(text[at - 1] ?? "")) {
        text = text.slice(0, at) + label;
        MARK.lastIndex = at;
      }
    } else if (mark[0] === "`") {
      const end = rest.search(new RegExp(`(?<!\`)${mark}(?!\`)`));
      if (end >= 0) MARK.lastIndex += end + mark.length;
      else if (!rest.trim()) text = text.slice(0, at);
      else {
        tail = mark;
        break;
      }
    } else if (mark[0] === "$" || mark === "\\(" || mark === "\\[") {
      const closing = mark.replace("(", ")").replace("[", "]"), end = rest.slice(0, 1000).indexOf(closing);
      if (end > 0) MARK.lastIndex += end + closing.length;
      else if (mark === "\\(" || !rest || (MATHS.test(rest) && !/[\w$]/.test(text[at - 1] ?? ""))) {
        text = rest.length < 1000 ? text.slice(0, at) : text; // show a formula when it is complete
      }
    } else if ("*_~".includes(mark[0])) {
      const before = text[at - 1] ?? " ", after = rest[0] ?? "";
      let left = mark.length;
      for (;;) {
        const opener = /\S/.test(before) ? open.findLastIndex((one) => one[0] === mark[0]) : -1;
        if (opener < 0 || open[opener].length > left) break;
        left -= open[opener].length;
        open.length = opener;
      }
      if (left && !after) text = text.slice(0, -left); // it opens the next words, or is half of a closing mark
      else if (left && mark !== "~" && /\S/.test(after) && !/\w/.test(before)) {
        for (; left > 0; left -= 2) open.push(mark[0].repeat(Math.min(left, 2)));
      }
    }
  }
  while (!tail && open.length && text.endsWith(open[open.length - 1])) text = text.slice(0, -(open.pop() ?? "").length);
  return `${text.trimEnd()}${tail}${open.reverse().join("")}`;
}
