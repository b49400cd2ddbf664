// Highlights of searched words in the open conversation.

import { log } from "../answer/scrolling.js";

const MOST = 500; // highlighted places
const RENDERED = 3000; // ms until an opened conversation has its Markdown, which moves its lines
const GOING = ["wheel", "touchmove", "keydown", "pointerdown"]; // input that may scroll

let left = new AbortController();

/**
 * Matches any of these words.
 * @param {string} words
 */
export function patternOf(words) {
  const parts = words.split(/\s+/).filter(Boolean).map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  return parts.length ? new RegExp(parts.join("|"), "giu") : null;
}

/**
 * Highlights words in the open conversation, and scrolls to the message with most of them.
 * @param {string} words
 */
export function highlightWords(words) {
  clearHighlights();
  const pattern = patternOf(words), { signal } = (left = new AbortController());
  if (!pattern || !CSS.highlights) return;
  let goes = true; // until the person scrolls
  const stay = () => { goes = false; };
  const mark = () => {
    const places = highlight(pattern);
    if (goes) places[0]?.startContainer.parentElement?.scrollIntoView({ block: "center" });
  };
  const observer = new MutationObserver(mark);
  observer.observe(log, { childList: true, subtree: true });
  for (const name of GOING) addEventListener(name, stay, { signal, capture: true });
  const rest = () => observer.disconnect();
  signal.addEventListener("abort", rest);
  setTimeout(rest, RENDERED); // later text was not in the search
  mark();
}

/** Removes all highlights. */
export function clearHighlights() {
  left.abort();
  CSS.highlights?.delete("found");
}

/** Highlights the words; returns their ranges in the message with most of them. @param {RegExp} pattern */
function highlight(pattern) {
  const articles = [...log.querySelectorAll("article")].map((node) => ({ node, words: wordsIn(node, pattern) }));
  const most = Math.max(1, ...articles.map(({ words }) => words));
  const best = articles.findLast(({ words }) => words === most);
  const places = articles.flatMap(({ node, words }) => words ? placesIn(node, pattern) : []).slice(-MOST);
  CSS.highlights.set("found", new Highlight(...places));
  return places.filter(({ startContainer }) => best?.node.contains(startContainer));
}

/** The number of different words in a message. @param {Element} node @param {RegExp} pattern */
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

/** The text nodes of a message, without cards and buttons. @param {Element} node @returns {Text[]} */
function textsIn(node) {
  return [...node.querySelectorAll(".message-text, .text")].flatMap((one) => {
    if (one.closest("details")) return [];
    const walker = document.createTreeWalker(one, NodeFilter.SHOW_TEXT), found = [];
    while (walker.nextNode()) found.push(/** @type {Text} */ (walker.currentNode));
    return found;
  });
}
