// The view of the sidebar with all tasks, in groups; the number of those that need the person; and notifications.

import { TaskCard } from "../answer/task_card.js";
import { addressOf } from "../base/address.js";
import { arrange, find, make, makeButton } from "../base/dom.js";
import { notify } from "../base/notifications.js";
import { sharedStorage } from "../base/storage.js";
import { areTasksLoaded, hasMoreTasks, listTasks, loadMoreTasks, tasks } from "../base/tasks.js";
import { t } from "../base/texts.js";
import { conversation } from "../conversation/conversation.js";
import { setBadge } from "../conversation/heading.js";
import { openNewTask } from "../dialogs/task_form.js";
import { leaveSide } from "./sidebar.js";
import { areTasksVisible, startViews, views } from "./views.js";

/**
 * @typedef {import("../base/types.js").Task} Task
 * @typedef {"tasksRunning" | "tasksAsking" | "tasksScheduled" | "tasksFinished"} Group
 */

const MOST = 1000; // results that the browser knows as seen

const view = find("tasks-view", HTMLElement), badge = find("tasks-badge", HTMLElement);
const sideBadge = find("side-badge", HTMLElement), toggle = find("history-toggle", HTMLButtonElement);
const list = make("ul", "task-groups"), note = make("p", "small history-note");
const more = makeButton(t("more"), loadMoreTasks, { className: "quiet wide" });

/** @type {Map<string, TaskCard>} */
const cards = new Map();
/** @type {Map<Group, HTMLLIElement>} */
const groups = new Map();

export function startTaskList() {
  startViews();
  note.setAttribute("role", "status");
  view.append(list, more, note);
  find("new-task", HTMLButtonElement).onclick = () => openNewTask({
    conversation: conversation.id,
    created: (task) => {
      leaveSide();
      conversation.showTask(task);
    },
  });
  view.addEventListener("click", ({ target }) => { if (target instanceof HTMLAnchorElement) leaveSide(); });
  tasks.addEventListener("changed", show);
  tasks.addEventListener("news", (event) => {
    const { task, report } = /** @type {CustomEvent} */ (event).detail;
    if (task) notifyOfTask(task);
    else notifyOfReport(report);
  });
  views.addEventListener("changed", show);
  conversation.addEventListener("opened", show);
  document.addEventListener("visibilitychange", show);
  window.addEventListener("storage", show); // another tab showed results
  new ResizeObserver(show).observe(view); // the sidebar opened
  show();
}

function show() {
  const all = listTasks(), ids = new Set(all.map(({ id }) => id));
  for (const id of cards.keys()) if (!ids.has(id)) cards.delete(id);
  showCount(all);
  if (!areTasksVisible()) return;
  /** @type {Map<Group, HTMLElement[]>} */
  const parts = new Map([["tasksRunning", []], ["tasksAsking", []], ["tasksScheduled", []], ["tasksFinished", []]]);
  for (const task of all) parts.get(groupOf(task))?.push(itemOf(task));
  arrange(list, [...parts].filter(([, nodes]) => nodes.length).map(([name, nodes]) => makeGroup(name, nodes)));
  more.hidden = !hasMoreTasks();
  note.textContent = all.length ? "" : t(areTasksLoaded() ? "noTasks" : "loading");
}

/** @param {Task} task @returns {Group} */
function groupOf({ state, approval }) {
  if (approval) return "tasksAsking";
  if (state === "waiting") return "tasksScheduled";
  return state === "pending" || state === "running" ? "tasksRunning" : "tasksFinished";
}

/** @param {Task} task */
function itemOf({ id }) {
  const card = cards.get(id) ?? new TaskCard(id);
  cards.set(id, card);
  card.show();
  return card.node;
}

/** @param {Group} name @param {HTMLElement[]} nodes */
function makeGroup(name, nodes) {
  const node = groups.get(name) ?? make("li", "", make("h2", "small group", t(name)), make("div", "task-group"));
  groups.set(name, node);
  arrange(/** @type {Element} */ (node.lastElementChild), nodes);
  return node;
}

/** Counts the tasks that wait for the person, and those with a result that the person has not seen. @param {Task[]} all */
function showCount(all) {
  const before = sharedStorage.get("seen-tasks"), seen = new Set((before ?? "").split(" "));
  const done = all.filter(isDone), isSeen = (/** @type {Task} */ task) => {
    const isOpen = !document.hidden && [task.conversation_id, task.work_id].includes(conversation.id ?? "");
    return before === null || areTasksVisible() || isOpen || seen.has(keyOf(task));
  };
  const now = [...new Set([...seen, ...done.filter(isSeen).map(keyOf)])].slice(-MOST).join(" ").trim();
  if (areTasksLoaded() && now !== before) sharedStorage.put("seen-tasks", now);
  const asking = all.filter(({ approval }) => approval).length, count = asking + done.filter((one) => !isSeen(one)).length;
  for (const one of [badge, sideBadge]) {
    one.textContent = count ? String(count) : "";
    one.hidden = !count;
  }
  badge.setAttribute("aria-label", t("tasksNews", { count }));
  toggle.setAttribute("aria-description", count ? t("tasksNews", { count }) : "");
  setBadge(count);
}

/** Whether its newest run ended. @param {Task} task */
function isDone({ state, run, approval }) {
  return state === "succeeded" || state === "failed" || (state === "waiting" && run > 0 && !approval);
}

/** @param {Task} task */
const keyOf = ({ id, run }) => `${id}.${run}`;

/** @param {import("../base/types.js").TaskNews} news */
function notifyOfTask({ task_id: id, title, text = "", kind, conversation_id }) {
  const titles = { approval: t("notifyApproval", { title }), failure: t("notifyFailure", { title }) };
  const address = addressOf(conversation_id);
  if (kind === "approval" || kind === "failure") notify({ title: titles[kind], body: text, tag: id, address });
  if (kind === "paused") notify({ title: t("notifyFailure", { title }), body: text, tag: id, address });
}

/** @param {import("../base/types.js").Report} report */
function notifyOfReport({ conversation_id: id }) {
  notify({ title: t("report"), body: "", tag: id, address: addressOf(id) });
}
