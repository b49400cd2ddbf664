// Answer: Markdown. The server makes HTML of it, block by block; it is put in here, and nowhere else.

import { copy } from "../ground/copying.js";
import { icon, make } from "../ground/dom.js";
import { pause } from "../ground/pause.js";
import { Refused, request } from "../ground/server.js";
import { t } from "../ground/texts.js";
import { log } from "./reading.js";

const AGAIN = 1000; // ms after which the server is asked again
const ROOM = 64; // bytes of a request that are no text

/** @typedef {{ html: string, end: number, fence: string }} Block `end` in UTF-16 units, `fence` of open code */

const asItIs = { createHTML: (/** @type {string} */ html) => html };
/** @type {{ createHTML: (html: string) => any }} */
const policy = /** @type {any} */ (window).trustedTypes?.createPolicy("brain", asItIs) ?? asItIs;

let textsMost = 1, bytesMost = 0; // in one request
let openMost = 0; // characters of a text that is still being written

/** @param {import("../ground/types.js").Limits} limits */
export function startMarkdown({ markdown_texts, markdown_bytes, markdown_open }) {
  textsMost = markdown_texts;
  bytesMost = markdown_bytes - ROOM;
  openMost = markdown_open;
}

/** How many characters of a text that is still being written the server takes. */
export function mostOpen() {
  return openMost;
}

/** Whether the server takes these texts at once. @param {string[]} texts */
export function takes(texts) {
  if (texts.length > textsMost || texts.some(({ length }) => length > bytesMost)) return false;
  return new TextEncoder().encode(JSON.stringify(texts)).length <= bytesMost;
}

/**
 * Asks until the server has an answer: it may be away, or have too many texts of ours.
 * @param {string[]} texts
 * @param {boolean} open whether the last block of each is still being written
 * @param {() => boolean} wanted whether somebody still waits for them
 * @returns {Promise<Block[][] | null>} null when it makes no HTML of them, or nobody waits
 */
export async function blocksOf(texts, open, wanted) {
  for (;;) {
    try {
      return (await request("POST", "page/markdown", { texts, open })).texts;
    } catch (error) {
      if (error instanceof Refused && error.status < 500 && error.status !== 429) return null;
      await pause(AGAIN);
      if (!wanted()) return null;
    }
  }
}

/**
 * @param {Block[]} blocks
 * @returns {Element[]}
 */
export function nodesOf(blocks) {
  const template = document.createElement("template");
  template.innerHTML = policy.createHTML(blocks.map(({ html }) => html.trim()).join(""));
  template.content.querySelectorAll("pre:has(> code)").forEach(frame);
  for (const box of template.content.querySelectorAll("input")) box.ariaLabel = t("done"); // it ends with its item
  return [...template.content.children]; // without the lines between them
}

/**
 * Says the levels of headings without gaps, for those who go from heading to heading; the page's own is the first.
 * @param {ChildNode[]} nodes
 * @param {number} level of the heading before
 * @returns {number} of the last one
 */
export function levelled(nodes, level) {
  for (const node of nodes) {
    if (!(node instanceof Element)) continue;
    const own = node.matches("h3, h4, h5, h6") ? [node] : [];
    for (const heading of [...own, ...node.querySelectorAll("h3, h4, h5, h6")]) {
      level = Math.min(Number(heading.tagName[1]) - 1, level + 1);
      heading.ariaLevel = String(level);
    }
  }
  return level;
}

/** Code gets a line above it: its language, and a button that copies it. @param {Element} pre */
function frame(pre) {
  const language = pre.querySelector("code")?.className.match(/language-([\w+#.-]+)/)?.[1] ?? "";
  const copies = make("button", "quiet copy-code", icon("copy"), make("span", "", t("copy")));
  copies.type = "button";
  copies.setAttribute("aria-label", t("copyCode"));
  pre.setAttribute("tabindex", "0");
  const around = make("div", "code", make("div", "code-head", make("span", "small", language), copies));
  pre.replaceWith(around);
  around.append(pre);
}

log.addEventListener("click", ({ target }) => {
  const clicked = target instanceof Element && target.closest(".copy-code");
  if (clicked) copy(clicked, clicked.closest(".code")?.querySelector("pre")?.textContent ?? "");
});
