// The list of conversations: loaded in parts, searched, and kept up to date with this and other tabs.

import { arrange, find, make, makeButton } from "../base/dom.js";
import { addArrowKeys } from "../base/roving.js";
import { Refused, errorText, request } from "../base/server.js";
import { addShortcut } from "../base/shortcuts.js";
import { sharedStorage } from "../base/storage.js";
import { notifyTabs, onTabNews } from "../base/tabs.js";
import { forgetTasksOf, tasks } from "../base/tasks.js";
import { formatPeriod, t } from "../base/texts.js";
import { onVisible } from "../base/visibility.js";
import { conversation } from "../conversation/conversation.js";
import { clearHighlights, highlightWords } from "../conversation/highlights.js";
import { Entry } from "./entry.js";
import { leaveSide, showSide, startSide, toggleSide } from "./sidebar.js";
import { showView } from "./views.js";

/** @typedef {import("../base/types.js").Listed} Listed */

const PART = 50; // conversations per request
const PAUSE = 200; // ms without a key before a search
const UNREAD = 100; // conversations that are marked as unread at most
const SOON = 5000, LATER = 8000; // ms between checks, while Brain writes an answer and otherwise

const list = find("conversations", HTMLUListElement), note = find("history-note", HTMLParagraphElement);
const search = find("search", HTMLInputElement), settle = addArrowKeys(list, ".entry");
const more = makeButton(t("more"), onMore, { className: "quiet wide" });

/** @type {Map<string, Entry>} */
const entries = new Map();
/** @type {Map<string, HTMLLIElement>} */
const groups = new Map();
/** @type {Listed[]} */
let headings = [];
/** @type {string | null} */
let next = null;
let words = "", problem = "", loaded = false, signedOut = false, waiting = 0, again = 0;
let loading = new AbortController();

export function startHistory() {
  const newButton = find("new-conversation", HTMLButtonElement);
  more.hidden = true;
  list.after(more);
  onVisible(more, loadMore);
  newButton.onclick = begin;
  search.oninput = () => {
    clearTimeout(waiting);
    waiting = window.setTimeout(load, PAUSE);
  };
  search.onkeydown = onSearchKey;
  list.addEventListener("click", onClick);
  conversation.addEventListener("opened", onOpened);
  conversation.addEventListener("changed", onChanged);
  onTabNews(onNews);
  tasks.addEventListener("report", (event) => onReport(/** @type {CustomEvent} */ (event).detail.conversation_id));
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) return;
    setUnread(conversation.id, false);
    refresh();
  });
  addShortcut("o", true, t("newConversation"), begin);
  addShortcut("k", false, t("search"), () => {
    showSide();
    showView("conversations");
    search.select();
  });
  addShortcut("s", true, t("toggleHistory"), toggleSide);
  startSide();
  load();
}

async function onMore() {
  entries.get(await loadMore())?.link.focus();
}

function begin() {
  leaveSide();
  conversation.startNew();
  conversation.emit("write");
}

/** Loads the first part again. */
async function load() {
  words = search.value.trim();
  if (!words) clearHighlights();
  const page = await fetchPart(null, PART);
  if (!page) return;
  headings = page.conversations;
  next = page.next;
  show();
}

/** @returns {Promise<string>} the id of the first new entry, or an empty text */
async function loadMore() {
  const before = headings.length, page = await fetchPart(next, PART);
  if (!page) return "";
  headings = [...headings, ...page.conversations.filter((one) => !headings.some(({ id }) => id === one.id))];
  next = page.next;
  show();
  return headings[before]?.id ?? "";
}

/** Loads the newest conversations again, as many as are visible; older ones stay unchanged. */
async function refresh() {
  if (search.value.trim() !== words) return; // a search starts in a moment
  const page = await fetchPart(null, Math.min(Math.max(headings.length, PART), 200));
  if (!page) return;
  const last = page.conversations.at(-1)?.updated ?? "";
  const now = new Set(page.conversations.map(({ id }) => id));
  const older = page.next ? headings.filter(({ id, updated }) => updated < last && !now.has(id)) : [];
  headings = [...page.conversations, ...older];
  if (!older.length) next = page.next;
  show();
}

/**
 * @typedef {{ conversations: Listed[], next: string | null }} Part
 *
 * @param {string | null} before
 * @param {number} limit
 * @returns {Promise<Part | null>} null when it failed, or when a newer request replaced it
 */
async function fetchPart(before, limit) {
  loading.abort();
  const { signal } = (loading = new AbortController());
  const query = new URLSearchParams({ limit: String(limit) });
  if (words) query.set("q", words);
  if (before) query.set("before", before);
  const slow = setTimeout(() => { if (!loaded) note.textContent = t("loading"); }, 300);
  try {
    const page = await request("GET", `v1/conversations?${query}`, undefined, { signal });
    problem = "";
    loaded = true;
    signedOut = false;
    return page;
  } catch (error) {
    if (signal.aborted) return null;
    problem = errorText(error);
    signedOut = error instanceof Refused && error.status === 401;
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
    const name = formatPeriod(new Date(heading.updated));
    parts.set(name, [...parts.get(name) ?? [], entryOf(heading)]);
  }
  arrange(list, [...parts].map(([name, nodes]) => makeGroup(name, nodes)));
  settle();
  more.hidden = !next;
  note.replaceChildren(...noteContent());
  if (!signedOut) watch();
}

function watch() {
  clearTimeout(again);
  again = window.setTimeout(look, isRunning() ? SOON : LATER);
}

const isRunning = () => headings.some(({ running }) => running);

/** Looks for changes made elsewhere, such as in a terminal or on another device. */
async function look() {
  if (document.hidden) return;
  if (!problem && !isRunning() && (words || await isNewest(headings[0]))) return watch();
  refresh();
  conversation.catchUp();
}

/** @param {Listed | undefined} known */
async function isNewest(known) {
  const found = await request("GET", "v1/conversations?limit=1").catch(errorText), [newest] = found.conversations ?? [];
  return found.conversations && newest?.id === known?.id && newest?.updated === known?.updated;
}

/** Another conversation is open; highlights the words of the search in it. */
function onOpened() {
  setUnread(conversation.id, false);
  show();
  if (words && conversation.id) highlightWords(words);
}

/** @param {Listed} heading */
function entryOf(heading) {
  const entry = entries.get(heading.id) ?? new Entry(heading, { renamed: onRenamed, deleted: onDeleted });
  entries.set(heading.id, entry);
  const isUnread = unread().includes(heading.id);
  entry.show(heading, { current: heading.id === conversation.id, words, isUnread });
  return entry.node;
}

/** @param {string} name @param {HTMLElement[]} nodes */
function makeGroup(name, nodes) {
  const node = groups.get(name) ?? make("li", "", make("h2", "small group", name), make("ul"));
  groups.set(name, node);
  arrange(/** @type {Element} */ (node.lastElementChild), nodes);
  return node;
}

function noteContent() {
  if (problem) return [`${problem} `, makeButton(t("retry"), () => headings.length ? refresh() : load())];
  if (headings.length || !loaded) return [];
  return [t(words ? "nothingFound" : "noConversations")];
}

/** @param {Listed} heading */
function onRenamed(heading) {
  headings = headings.map((one) => one.id === heading.id ? { ...one, title: heading.title } : one);
  show();
  notifyTabs({ renamed: heading.id, title: heading.title });
  conversation.renamed(heading.id, heading.title);
}

/** @param {string} id */
function onDeleted(id) {
  forgetTasksOf(id);
  const at = headings.findIndex((one) => one.id === id);
  headings = headings.filter((one) => one.id !== id);
  show();
  notifyTabs({ deleted: id });
  if (conversation.id === id) conversation.startNew();
  else {
    const neighbour = entries.get((headings[at] ?? headings.at(-1))?.id)?.link;
    (neighbour ?? find("new-conversation", HTMLButtonElement)).focus();
  }
  refresh();
}

function onChanged() {
  if (!document.hidden) setUnread(conversation.id, false);
  refresh();
  notifyTabs({});
}

/** The conversations with a report that nobody has read in this browser. */
const unread = () => (sharedStorage.get("unread") ?? "").split(" ").filter(Boolean);

/** @param {string | null} id @param {boolean} isUnread */
function setUnread(id, isUnread) {
  const before = unread(), others = before.filter((one) => one !== id);
  const now = isUnread && id ? [...others, id].slice(-UNREAD) : others;
  if (now.length === before.length) return;
  sharedStorage.put("unread", now.join(" ") || null);
  show();
}

/** A report begins. @param {string} id of its conversation */
function onReport(id) {
  if (id !== conversation.id || document.hidden) setUnread(String(id), true);
  if (!document.hidden) refresh();
}

/** @param {import("../base/tabs.js").News} news what another tab did */
function onNews({ deleted, renamed, title = "", task, report }) {
  if (task || report) return;
  if (deleted) forgetTasksOf(deleted);
  if (deleted && deleted === conversation.id) conversation.startNew();
  if (renamed) conversation.renamed(renamed, title);
  if (!document.hidden) refresh();
}

/** @param {MouseEvent} event */
function onClick({ target }) {
  if (!(target instanceof HTMLAnchorElement)) return;
  leaveSide();
  if (target.ariaCurrent && words) highlightWords(words); // it is already open
}

/** @param {KeyboardEvent} event in the search box */
function onSearchKey(event) {
  if (event.isComposing) return;
  if (event.key === "ArrowDown") list.querySelector("a")?.focus();
  else if (event.key === "Enter" && search.value.trim()) openFirst();
  else if (event.key === "Escape" && search.value) {
    search.value = "";
    load();
  } else return;
  event.preventDefault();
}

/** Opens the newest result, even before the search started. */
async function openFirst() {
  clearTimeout(waiting);
  await load();
  list.querySelector("a")?.click();
}
