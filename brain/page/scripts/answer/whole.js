// Answer: text that is whole. It is shown as it is until its HTML comes; what was asked for last comes first.

import { make } from "../ground/dom.js";
import { blocksOf, levelled, nodesOf, takes } from "./markdown.js";
import { follow } from "./reading.js";
import { Stretch } from "./stretch.js";

/** @typedef {import("./markdown.js").Block} Block */

const AT_ONCE = 24; // texts in one request, and characters
const CHARACTERS = 60_000;

/** @type {{ text: string, node: HTMLElement }[]} */
const waiting = [];
let rendering = false;

/**
 * A text as it was kept.
 * @param {string} text
 */
export function whole(text) {
  if (!takes([text])) return piecewise(text);
  const node = make("div", "text plain", text.trim());
  waiting.push({ text, node });
  if (!rendering) {
    rendering = true;
    queueMicrotask(renderAll);
  }
  return node;
}

/** One that is too large for the server, as if it were being written. @param {string} text */
function piecewise(text) {
  const stretch = new Stretch();
  stretch.append(text);
  stretch.end();
  return stretch.node;
}

async function renderAll() {
  while (waiting.length) {
    const some = newest(), blocks = await blocksOf(some.map(({ text }) => text), false);
    if (blocks) some.forEach(({ node }, n) => put(node, blocks[n]));
    follow();
  }
  rendering = false;
}

/** As many as go into one request. */
function newest() {
  const some = waiting.splice(-1);
  let characters = some[0].text.length;
  while (waiting.length && some.length < AT_ONCE && characters < CHARACTERS) {
    const next = waiting[waiting.length - 1];
    if (!takes([...some, next].map(({ text }) => text))) break;
    some.push(next);
    waiting.pop();
    characters += next.text.length;
  }
  return some;
}

/**
 * @param {HTMLElement} node
 * @param {Block[]} blocks
 */
function put(node, blocks) {
  const nodes = nodesOf(blocks);
  levelled(nodes, 1);
  node.className = "text";
  node.replaceChildren(...nodes);
}
