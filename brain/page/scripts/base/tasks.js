// The background tasks of the user, kept up to date by events of the server. One tab reads them for all tabs.

import { Refused, Unreachable, onSlowRequest, request } from "./server.js";
import { sharedStorage } from "./storage.js";
import { parseExactly } from "./stored_conversation.js";
import { notifyTabs, onTabNews } from "./tabs.js";

/**
 * @typedef {import("./types.js").Task} Task
 * @typedef {import("./types.js").TaskNews} TaskNews
 * @typedef {import("./types.js").Report} Report
 * @typedef {{ task?: TaskNews, report?: Report }} News
 */

const PART = 50, MOST = 1000; // tasks per request; active tasks of a user
const ACTIVE = "pending,running,waiting", ENDED = "succeeded,failed,canceled";
const LATER = 3000; // ms until the page connects again
const TOGETHER = 150; // ms; combines events about one task
const TYPING = 5000; // ms between messages that the person is typing
const READER = `brain tasks ${location.pathname}`; // the lock of the tab that reads the events

/** Fires `changed`; `report` with a Report; and in one tab only, `news` with each event. */
export const tasks = new EventTarget();

/** @type {Map<string, Task>} */
const known = new Map();
/** @type {Set<string>} */
const stale = new Set(); // ids of tasks that changed
/** @type {EventSource | null} */
let source = null;
/** @type {string | null} */
let next = null; // the last ended task that was loaded, if there are more
let isLoaded = false, isReader = false, isWaiting = false, updating = 0, again = 0, typed = 0;

/** Loads the tasks and follows their changes. */
export function startTasks() {
  onTabNews(({ task, report, tasks: deleted }) => {
    if (task || report) receive(task, report);
    if (deleted) load();
  });
  onSlowRequest(() => { if (source) connectLater(); });
  document.addEventListener("visibilitychange", onVisibility);
  if (document.hidden) load();
  onVisibility();
}

/** A conversation was deleted with its tasks, by this or another tab. @param {string} id */
export function forgetTasksOf(id) {
  for (const task of tasksOf(id)) known.delete(task.id);
  emit("changed");
}

/** All loaded tasks, newest first. */
export function listTasks() {
  return [...known.values()].sort((one, other) => other.created.localeCompare(one.created));
}

/** Whether the tasks were loaded at least once. */
export const areTasksLoaded = () => isLoaded;

/** Whether there are older tasks that have ended. */
export const hasMoreTasks = () => next !== null;

/** @param {string} id */
export const findTask = (id) => known.get(id);

/** The task that runs in a conversation, if it is one of a task. @param {string | null} id */
export const taskOfWork = (id) => listTasks().find((task) => task.work_id === id);

/** The tasks that a conversation reports. @param {string | null} id */
export const tasksOf = (id) => listTasks().filter((task) => task.conversation_id === id);

/** Loads a task that is not known or has changed. @param {string} id */
export function updateTask(id) {
  stale.add(id);
  updating ||= setTimeout(update, TOGETHER);
}

/**
 * Creates a task.
 * @param {object} fields
 * @returns {Promise<Task>}
 */
export async function createTask(fields) {
  return put(await request("POST", "v1/tasks", fields, { read: parseExactly }));
}

/**
 * What a schedule means, without creating a task.
 * @param {object} fields
 * @returns {Promise<{ schedule: string, next: string[] }>}
 */
export function previewTask(fields) {
  return request("POST", "v1/tasks", { ...fields, dry_run: true });
}

/** @param {string} id @param {object} fields */
export async function changeTask(id, fields) {
  put(await request("PATCH", pathOf(id), fields, { read: parseExactly }));
}

/** @param {string} id */
export async function runTask(id) {
  put(await request("POST", `${pathOf(id)}/run`, undefined, { read: parseExactly }));
}

/** @param {string} id */
export async function cancelTask(id) {
  const { task } = await request("POST", `${pathOf(id)}/cancel`, undefined, { read: parseExactly });
  if (task) put(task);
}

/**
 * Approves or declines the call that a task waits for.
 * @param {string} id
 * @param {string} call
 * @param {boolean} approve
 */
export async function decideTask(id, call, approve) {
  const path = `${pathOf(id)}/approvals/${encodeURIComponent(call)}`;
  put(await request("POST", path, { approve }, { read: parseExactly }));
}

/** @param {string} id */
export async function deleteTask(id) {
  await request("DELETE", pathOf(id)).catch((error) => { if (!isMissing(error)) throw error; });
  known.delete(id);
  notifyTabs({ tasks: true });
  emit("changed");
}

/** Loads older tasks that have ended. */
export async function loadMoreTasks() {
  if (next) await loadPart(ENDED, next).catch(unlessExpected);
  emit("changed");
}

/** The person types: a report on tasks of this conversation waits. @param {string | null} id */
export function noteTyping(id) {
  if (!id || Date.now() - typed < TYPING || !tasksOf(id).length) return;
  typed = Date.now();
  request("POST", `v1/conversations/${encodeURIComponent(id)}/typing`).catch(unlessExpected);
}

/** @param {string} id */
const pathOf = (id) => `v1/tasks/${encodeURIComponent(id)}`;

/** @param {Task} task */
function put(task) {
  known.set(task.id, task);
  emit("changed");
  return task;
}

/** @param {"changed" | "report" | "news"} name @param {Report | News} [detail] */
function emit(name, detail) {
  tasks.dispatchEvent(new CustomEvent(name, { detail }));
}

/** Loads all active tasks and the newest ended ones. @returns {Promise<number | null>} the cursor of the events */
async function load() {
  try {
    const before = new Set(known.keys());
    const { cursor, ids } = await loadPart(ENDED, null);
    for (let at = null, count = 0; count < MOST; count += PART) {
      const part = await loadPart(ACTIVE, at);
      ids.push(...part.ids);
      at = part.next;
      if (!at) break;
    }
    for (const id of before) if (!ids.includes(id)) known.delete(id);
    isLoaded = true;
    emit("changed");
    return cursor;
  } catch (error) {
    unlessExpected(error);
    if (!(error instanceof Refused && error.status === 401)) connectLater(); // else it would ask for a key again
    return null;
  }
}

/**
 * @param {string} states
 * @param {string | null} before
 * @returns {Promise<{ cursor: number, ids: string[], next: string | null }>}
 */
async function loadPart(states, before) {
  const query = new URLSearchParams({ state: states, limit: String(PART), ...(before ? { before } : {}) });
  const page = await request("GET", `v1/tasks?${query}`, undefined, { read: parseExactly });
  for (const task of page.tasks) known.set(task.id, task);
  if (states === ENDED) next = page.next;
  return { cursor: page.cursor, ids: page.tasks.map((/** @type {Task} */ { id }) => id), next: page.next };
}

/** Loads the tasks that changed. */
async function update() {
  const ids = [...stale];
  stale.clear();
  updating = 0;
  await Promise.all(ids.map(async (id) => {
    try {
      known.set(id, await request("GET", pathOf(id), undefined, { read: parseExactly }));
    } catch (error) {
      unlessExpected(error);
      if (isMissing(error)) known.delete(id);
    }
  }));
  emit("changed");
}

/** The tab that the person looks at reads the events, so that it knows whether the page is hidden. */
function onVisibility() {
  if (!navigator.locks) { // plain HTTP from another machine
    isReader = !document.hidden;
    if (isReader) connect();
    else disconnect();
  } else if (!document.hidden && !isReader) read(true);
}

/**
 * Reads the events until another tab does.
 * @param {boolean} steal instead of the tab that reads them; else when that tab closes
 */
async function read(steal) {
  if (!steal && isWaiting) return;
  isWaiting ||= !steal;
  const untilStolen = () => {
    if (!steal) isWaiting = false;
    isReader = true;
    connect();
    return new Promise(() => {});
  };
  await navigator.locks.request(READER, { steal }, untilStolen).catch(unlessStolen);
  isReader = false;
  disconnect();
  read(false);
}

/** @param {unknown} error */
function unlessStolen(error) {
  if (!(error instanceof DOMException && error.name === "AbortError")) throw error;
}

/** Reads what follows the last event that a tab of this browser read. */
async function connect() {
  disconnect();
  const newest = await load();
  if (newest === null || !isReader || source) return;
  const last = Number(sharedStorage.get("tasks") ?? Infinity);
  source = new EventSource(`v1/tasks/events?after=${Math.min(last, newest)}`); // a new database starts again
  source.onerror = connectLater;
  source.addEventListener("task", (event) => relay(event, { task: JSON.parse(event.data) }));
  source.addEventListener("report", (event) => relay(event, { report: JSON.parse(event.data) }));
}

function disconnect() {
  clearTimeout(again);
  source?.close();
  source = null;
}

function connectLater() {
  disconnect();
  again = setTimeout(() => { if (isReader) connect(); }, LATER);
}

/** @param {MessageEvent} event @param {News} news */
function relay({ lastEventId }, news) {
  sharedStorage.put("tasks", lastEventId);
  notifyTabs(news);
  emit("news", news);
  receive(news.task, news.report);
}

/** @param {TaskNews | undefined} task @param {Report | undefined} report */
function receive(task, report) {
  if (task) updateTask(String(task.task_id));
  if (report) emit("report", report);
}

/** @param {unknown} error */
function isMissing(error) {
  return error instanceof Refused && error.status === 404;
}

/** @param {unknown} error */
function unlessExpected(error) {
  if (!(error instanceof Refused || error instanceof Unreachable)) throw error;
}
