// Conversation: the words that were searched for, where they stand in the open conversation.

import { log } from "../answer/reading.js";

const MOST = 500; // places that are marked
const RENDERED = 3000; // ms in which what is opened gets its Markdown, and its lines move
const GOING = ["wheel", "touchmove", "keydown", "pointerdown"]; // who does one of these goes elsewhere

let left = new AbortController();

/**
 * One of these words, anywhere.
 * @param {string} words
 */
export function anyOf(words) {
  const parts = words.split(/\s+/).filter(Boolean).map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  return parts.length ? new RegExp(parts.join("|"), "giu") : null;
}

/**
 * Marks words in the open conversation from now on, and shows the message in which most of them stand.
 * @param {string} words
 */
export function markWords(words) {
  unmark();
  const pattern = anyOf(words), { signal } = (left = new AbortController());
  if (!pattern || !CSS.highlights) return;
  let goes = true; // until the person goes elsewhere
  const stay = () => { goes = false; };
  const mark = () => {
    const places = marked(pattern);
    if (goes) places[0]?.startContainer.parentElement?.scrollIntoView({ block: "center" });
  };
  const observer = new MutationObserver(mark);
  observer.observe(log, { childList: true, subtree: true });
  for (const name of GOING) addEventListener(name, stay, { signal, capture: true });
  const rest = () => observer.disconnect();
  signal.addEventListener("abort", rest);
  setTimeout(rest, RENDERED); // what is written from then on was not searched
  mark();
}

/** Marks nothing any more. */
export function unmark() {
  left.abort();
  CSS.highlights?.delete("found");
}

/** Marks the places of words, and tells those in the message to be shown. @param {RegExp} pattern */
function marked(pattern) {
  const articles = [...log.querySelectorAll("article")].map((node) => ({ node, words: wordsIn(node, pattern) }));
  const most = Math.max(1, ...articles.map(({ words }) => words));
  const best = articles.findLast(({ words }) => words === most);
  const places = articles.flatMap(({ node, words }) => words ? placesIn(node, pattern) : []).slice(-MOST);
  CSS.highlights.set("found", new Highlight(...places));
  return places.filter(({ startContainer }) => best?.node.contains(startContainer));
}

/** How many different words stand in a message. @param {Element} node @param {RegExp} pattern */
function wordsIn(node, pattern) {
  return new Set(textsIn(node).flatMap(({ data }) => data.toLowerCase().match(pattern) ?? [])).size;
}

/** @param {Element} node @param {RegExp} pattern */
function placesIn(node, pattern) {
  return textsIn(node).flatMap((text) => [...text.data.matchAll(pattern)].map(({ 0: { length }, index }) => {
    const range = new Range();
    range.setStart(text, index);
    range.setEnd(text, index + length);
    return range;
  }));
}

/** What was said in a message; not what stands in cards and buttons. @param {Element} node @returns {Text[]} */
function textsIn(node) {
  return [...node.querySelectorAll(".said, .text")].flatMap((one) => {
    if (one.closest("details")) return [];
    const walker = document.createTreeWalker(one, NodeFilter.SHOW_TEXT), found = [];
    while (walker.nextNode()) found.push(/** @type {Text} */ (walker.currentNode));
    return found;
  });
}
