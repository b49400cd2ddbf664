// The parameters of a call, exactly as the model wrote them. The person who approves it must see each character.

import { box } from "../base/box.js";
import { button, make } from "../base/dom.js";
import { t } from "../base/texts.js";

const LONG = 400, HEAD = 240, TAIL = 120; // characters of one value: a longer one is folded in the middle

/**
 * Replaces invisible characters, and those that reverse others, by their numbers.
 * @param {string} text
 */
export function exact(text) {
  return text.replace(/(?![\n ])[\p{C}\p{Z}\p{DI}\u2800]/gu, (one) => `\\u{${one.codePointAt(0)?.toString(16)}}`);
}

/**
 * The tokens of the parameters in an event's data: `JSON.parse` would round large numbers.
 * @param {string} data the JSON of an event
 * @returns {string[]} none when there are no parameters
 */
export function paramsIn(data) {
  const tokens = data.match(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g) ?? [];
  let depth = 0, start = 0;
  for (const [n, token] of tokens.entries()) {
    if ("{[".includes(token)) depth += 1;
    if ("}]".includes(token)) depth -= 1;
    if (!start && depth === 1 && token === '"params"' && tokens[n + 1] === ":") start = n + 2;
    if (start && depth === 1 && n >= start && (!"{[".includes(tokens[start]) || "}]".includes(token))) {
      return tokens.slice(start, n + 1);
    }
  }
  return [];
}

/**
 * JSON with a line for each value.
 * @param {string[]} tokens
 * @returns {string[]} the tokens, and the space between them
 */
export function laidOut(tokens) {
  const pieces = [];
  let indent = "\n";
  for (const [n, token] of tokens.entries()) {
    const opens = "{[".includes(token), empty = "}]".includes(tokens[n + 1] ?? " ");
    if ("}]".includes(token)) {
      indent = indent.slice(0, -2);
      if (!"{[".includes(tokens[n - 1])) pieces.push(indent);
    }
    if (opens) indent += "  ";
    pieces.push(token === ":" ? ": " : token);
    if (token === "," || (opens && !empty)) pieces.push(indent);
  }
  return pieces;
}

/**
 * The same in one line, for a glance: without the outer braces, and simple names without their quotation marks.
 * @param {string[]} tokens
 */
export function inShort(tokens) {
  const inner = tokens[0] === "{" ? tokens.slice(1, -1) : tokens;
  return exact(inner.map((token, n) => {
    if (token === ":" || token === ",") return `${token} `;
    return inner[n + 1] === ":" && /^"[\w-]+"$/.test(token) ? token.slice(1, -1) : token;
  }).join("").slice(0, 300));
}

/** In full, with each name in sight. @param {string[]} tokens */
export function paramsBox(tokens) {
  const pieces = laidOut(tokens).map(exact);
  return box(t("parameters"), make("pre", "", ...pieces.map((piece) => piece.length > LONG ? folded(piece) : piece)));
}

/** @param {string} value */
function folded(value) {
  const characters = [...value], middle = characters.slice(HEAD, -TAIL);
  const unfold = button(t("unfold", { count: middle.length }), () => {
    const around = node.closest("[tabindex]");
    if (around instanceof HTMLElement) around.focus({ preventScroll: true });
    unfold.replaceWith(middle.join(""));
  }, { className: "quiet fold" });
  const node = make("span", "", characters.slice(0, HEAD).join(""), unfold, characters.slice(-TAIL).join(""));
  return node;
}
