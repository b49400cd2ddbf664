// Answer: text that is whole. It is shown as it is until its HTML comes; what was asked for last comes first.

import { make } from "../ground/dom.js";
import { blocksOf, levelled, nodesOf, takes } from "./markdown.js";
import { follow } from "./reading.js";
import { Stretch } from "./stretch.js";

/** @typedef {import("./markdown.js").Block} Block */

const AT_ONCE = 24; // texts in one request, and characters: fewer than the server takes, so that the first come soon
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
  wait(text, node);
  return node;
}

/** What was taken off before it was rendered, and put back. @param {HTMLElement} node */
export function renderAgain(node) {
  for (const plain of node.querySelectorAll(".flow > .text.plain")) {
    if (plain instanceof HTMLElement) wait(plain.textContent ?? "", plain);
  }
}

/** @param {string} text @param {HTMLElement} node */
function wait(text, node) {
  waiting.push({ text, node });
  if (rendering) return;
  rendering = true;
  queueMicrotask(renderAll);
}

/** One that is too large for the server, as if it were being written. @param {string} text */
function piecewise(text) {
  const stretch = new Stretch();
  stretch.append(text);
  stretch.end();
  return stretch.node;
}

async function renderAll() {
  for (let some = newest(); some.length; some = newest()) {
    const blocks = await blocksOf(some.map(({ text }) => text), false, () => some.some(({ node }) => node.isConnected));
    if (blocks) some.forEach(({ node }, n) => put(node, blocks[n]));
    follow();
  }
  rendering = false;
}

/** As many as go into one request. What belongs to a conversation that was left is forgotten. */
function newest() {
  const some = [];
  let characters = 0;
  while (waiting.length && some.length < AT_ONCE && characters < CHARACTERS) {
    const next = waiting[waiting.length - 1];
    if (some.length && !takes([...some, next].map(({ text }) => text))) break;
    waiting.pop();
    if (!next.node.isConnected) continue;
    some.push(next);
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
