// Room: the list of conversations: loaded in parts, searched, kept up to date with what this tab and others do.

import { conversation } from "./conversation.js";
import { arrange, button, find, make, touched } from "./dom.js";
import { Entry } from "./entry.js";
import { kept } from "./keeping.js";
import { request, told } from "./server.js";
import { shortcut } from "./shortcuts.js";
import { hearTabs, tellTabs } from "./tabs.js";
import { period, t } from "./texts.js";

/** @typedef {import("./types.js").Heading} Heading */

const PART = 50; // conversations at once
const PAUSE = 200; // ms without a key before a search
const SOON = 5000; // ms until it is asked whether an answer is still being written

const root = document.documentElement;
const narrow = matchMedia("(max-width: 48rem)");
const list = find("conversations", HTMLUListElement), note = find("history-note", HTMLParagraphElement);
const search = find("search", HTMLInputElement), toggle = find("history-toggle", HTMLButtonElement);
const more = button(t("more"), loadMore, { className: "quiet wide" });

/** @type {Map<string, Entry>} */
const entries = new Map();
/** @type {Map<string, HTMLLIElement>} */
const groups = new Map();
/** @type {Heading[]} */
let headings = [];
/** @type {string | null} */
let next = null;
let words = "", problem = "", loaded = false, waiting = 0, again = 0;
let loading = new AbortController();

export function startHistory() {
  const fresh = find("fresh", HTMLButtonElement);
  list.after(more);
  fresh.onclick = begin;
  toggle.onclick = () => unfold(!root.classList.contains("with-history"));
  search.oninput = () => {
    clearTimeout(waiting);
    waiting = window.setTimeout(load, PAUSE);
  };
  list.addEventListener("click", (event) => {
    if (narrow.matches && event.target instanceof HTMLAnchorElement) unfold(false);
  });
  find("history", HTMLElement).addEventListener("keydown", leave);
  for (const id of ["scrim", "history-close"]) find(id, HTMLElement).onclick = fold;
  narrow.onchange = () => unfold(!narrow.matches && kept.get("history") !== "hidden");
  conversation.addEventListener("opened", show);
  conversation.addEventListener("changed", changed);
  hearTabs(heard);
  document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
  shortcut("o", true, t("fresh"), begin);
  shortcut("k", false, t("search"), () => {
    unfold(true);
    search.select();
  });
  shortcut("s", true, t("toggleHistory"), () => toggle.click());
  unfold(root.classList.contains("with-history"));
  load();
}

function begin() {
  if (narrow.matches) unfold(false);
  conversation.fresh();
}

/** Loads the first part anew. */
async function load() {
  words = search.value.trim();
  const page = await part(null, PART);
  if (!page) return;
  headings = page.conversations;
  next = page.next;
  show();
}

async function loadMore() {
  const before = headings.length, page = await part(next, PART);
  if (!page) return;
  headings = [...headings, ...page.conversations.filter((one) => !headings.some(({ id }) => id === one.id))];
  next = page.next;
  show();
  entries.get(headings[before]?.id)?.link.focus();
}

/** Loads the newest anew, of as many as are shown; older ones stay as they are. */
async function refresh() {
  if (search.value.trim() !== words) return; // a search is about to begin
  const page = await part(null, Math.min(Math.max(headings.length, PART), 200));
  if (!page) return;
  const last = page.conversations.at(-1)?.updated ?? "";
  const now = new Set(page.conversations.map(({ id }) => id));
  const older = page.next ? headings.filter(({ id, updated }) => updated < last && !now.has(id)) : [];
  headings = [...page.conversations, ...older];
  if (!older.length) next = page.next;
  show();
}

/**
 * @typedef {{ conversations: Heading[], next: string | null }} Part
 *
 * @param {string | null} before
 * @param {number} limit
 * @returns {Promise<Part | null>} null when it failed, or another is asked for
 */
async function part(before, limit) {
  loading.abort();
  const { signal } = (loading = new AbortController());
  const query = new URLSearchParams({ limit: String(limit) });
  if (words) query.set("q", words);
  if (before) query.set("before", before);
  const slow = setTimeout(() => { if (!loaded) note.textContent = t("loading"); }, 300);
  try {
    const page = await request("GET", `v1/conversations?${query}`, undefined, signal);
    problem = "";
    loaded = true;
    return page;
  } catch (error) {
    if (signal.aborted) return null;
    problem = told(error);
    show();
    return null;
  } finally {
    clearTimeout(slow);
  }
}

function show() {
  const ids = new Set(headings.map(({ id }) => id));
  for (const id of entries.keys()) if (!ids.has(id)) entries.delete(id);
  /** @type {Map<string, HTMLElement[]>} */
  const parts = new Map();
  for (const heading of headings) {
    const name = period(new Date(heading.updated));
    parts.set(name, [...parts.get(name) ?? [], shown(heading)]);
  }
  arrange(list, [...parts].map(([name, nodes]) => group(name, nodes)));
  more.hidden = !next;
  clearTimeout(again);
  if (headings.some(({ running }) => running)) again = window.setTimeout(refresh, SOON);
  note.replaceChildren(...noted());
}

/** @param {Heading} heading */
function shown(heading) {
  const entry = entries.get(heading.id) ?? new Entry(heading, { renamed, deleted });
  entries.set(heading.id, entry);
  entry.show(heading, { current: heading.id === conversation.id, words });
  return entry.node;
}

/** @param {string} name @param {HTMLElement[]} nodes */
function group(name, nodes) {
  const node = groups.get(name) ?? make("li", "", make("h2", "small group", name), make("ul"));
  groups.set(name, node);
  arrange(/** @type {Element} */ (node.lastElementChild), nodes);
  return node;
}

function noted() {
  if (problem) return [`${problem} `, button(t("tryAgain"), () => headings.length ? refresh() : load())];
  if (headings.length || !loaded) return [];
  return [t(words ? "nothingFound" : "noConversations")];
}

/** @param {Heading} heading */
function renamed(heading) {
  headings = headings.map((one) => one.id === heading.id ? { ...one, title: heading.title } : one);
  show();
  tellTabs({ renamed: heading.id, title: heading.title });
  conversation.renamed(heading.id, heading.title);
}

/** @param {string} id */
function deleted(id) {
  const at = headings.findIndex((one) => one.id === id);
  headings = headings.filter((one) => one.id !== id);
  show();
  tellTabs({ deleted: id });
  if (conversation.id === id) conversation.fresh();
  else (entries.get((headings[at] ?? headings.at(-1))?.id)?.link ?? find("fresh", HTMLButtonElement)).focus();
  refresh();
}

function changed() {
  refresh();
  tellTabs({});
}

/** @param {import("./tabs.js").News} news what another tab did */
function heard({ deleted, renamed, title = "" }) {
  if (deleted && deleted === conversation.id) conversation.fresh();
  if (renamed) conversation.renamed(renamed, title);
  if (!document.hidden) refresh();
}

/** @param {boolean} visible */
function unfold(visible) {
  root.classList.toggle("with-history", visible);
  toggle.setAttribute("aria-expanded", String(visible));
  find("stage", HTMLElement).inert = visible && narrow.matches; // it lies behind the list
  if (!narrow.matches) kept.put("history", visible ? null : "hidden");
  else if (visible) (touched ? find("history-close", HTMLButtonElement) : search).focus();
}

/** Folds the list away where it lies over the page. */
function fold() {
  unfold(false);
  toggle.focus();
}

/** @param {KeyboardEvent} event */
function leave(event) {
  if (event.key !== "Escape" || event.defaultPrevented) return;
  if (event.target === search && search.value) {
    event.preventDefault();
    search.value = "";
    load();
  } else if (narrow.matches) {
    event.preventDefault();
    fold();
  }
}
