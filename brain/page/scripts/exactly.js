// Room: parameters for whoever decides about a call: each character, and each name in sight.

import { box } from "./box.js";
import { button, make } from "./dom.js";
import { exact, laidOut } from "./params.js";
import { t } from "./texts.js";

const LONG = 400, HEAD = 240, TAIL = 120; // characters of one value: a longer one is folded in the middle

/** @param {string[]} tokens */
export function exactly(tokens) {
  return box(t("parameters"), make("pre", "", ...laidOut(tokens).map(exact).map((piece) => (piece.length > LONG ? folded(piece) : piece))));
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
