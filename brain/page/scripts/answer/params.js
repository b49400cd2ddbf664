// The parameters of a call, exactly as the model wrote them: the person who approves it must see each character.

import { make, makeButton } from "../base/dom.js";
import { makeScrollBox } from "../base/scroll_box.js";
import { t } from "../base/texts.js";

const LONG = 400, HEAD = 240, TAIL = 120; // characters; a value longer than LONG is folded in the middle

/**
 * Replaces invisible and reversing characters by their code points.
 * @param {string} text
 */
export function escapeInvisible(text) {
  return text.replace(/(?![\n ])[\p{C}\p{Z}\p{DI}\u2800]/gu, (one) => `\\u{${one.codePointAt(0)?.toString(16)}}`);
}

/**
 * The JSON tokens of the parameters in an event: `JSON.parse` would round large numbers.
 * @param {string} data the JSON of an event
 * @returns {string[]} empty when there are no parameters
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
 * JSON with one value per line.
 * @param {string[]} tokens
 * @returns {string[]} tokens and white space
 */
export function layOut(tokens) {
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
 * A short form on one line, without outer braces and without quotation marks around names.
 * @param {string[]} tokens
 */
export function abbreviate(tokens) {
  const inner = tokens[0] === "{" ? tokens.slice(1, -1) : tokens;
  return escapeInvisible(inner.map((token, n) => {
    if (token === ":" || token === ",") return `${token} `;
    return inner[n + 1] === ":" && /^"[\w-]+"$/.test(token) ? token.slice(1, -1) : token;
  }).join("").slice(0, 300));
}

/** All parameters, with every name visible. @param {string[]} tokens */
export function makeParamsBox(tokens) {
  const pieces = layOut(tokens).map(escapeInvisible).map((piece) => piece.length > LONG ? makeFolded(piece) : piece);
  return makeScrollBox(t("parameters"), make("pre", "", ...pieces));
}

/** @param {string} value */
function makeFolded(value) {
  const characters = [...value], middle = characters.slice(HEAD, -TAIL);
  const unfold = makeButton(t("unfold", { count: middle.length }), () => {
    const around = node.closest("[tabindex]");
    if (around instanceof HTMLElement) around.focus({ preventScroll: true });
    unfold.replaceWith(middle.join(""));
  }, { className: "quiet fold" });
  const node = make("span", "", characters.slice(0, HEAD).join(""), unfold, characters.slice(-TAIL).join(""));
  return node;
}
