// The card of a background task: what it does, its result, and what a person can do with it.

import { addressOf } from "../base/address.js";
import { askConfirmation } from "../base/dialog.js";
import { make, makeButton, makeIcon, makeProblemLine } from "../base/dom.js";
import { makeMenuButton } from "../base/menu.js";
import { makeScrollBox } from "../base/scroll_box.js";
import { errorText } from "../base/server.js";
import {
  cancelTask, changeTask, decideTask, deleteTask, findTask, runTask, tasks, updateTask,
} from "../base/tasks.js";
import { formatTime, t } from "../base/texts.js";
import { describeSchedule } from "../dialogs/schedule.js";
import { openTaskTime } from "../dialogs/task_form.js";
import { makeParamsBox, paramsIn } from "./params.js";
import { renderMarkdown } from "./text.js";

/** @typedef {import("../base/types.js").Task} Task */

/** @type {Record<string, string>} */
const LOOKS = { pending: "running", running: "running", succeeded: "ok", failed: "failed", canceled: "abandoned" };
/** @type {Record<string, string>} */
const MARKS = { ok: "check", failed: "warning", abandoned: "close", waiting: "question", scheduled: "clock" };

/** A task, always as the server knows it. */
export class TaskCard {
  #mark = make("span", "mark");
  #title = make("strong");
  #state = make("span", "state");
  #note = make("p", "note");
  #ask = make("div", "ask");
  #result = make("details", "task-result");
  #problem = makeProblemLine();
  #open = make("a", "button", t("open"));
  #home = make("a", "button", t("openConversation"));
  #cancel = makeButton(t("cancel"), () => this.#try(cancelTask(this.id)));
  #menu = make("span");
  #shownApproval = "null";
  #shownResult = "";
  #shownChoices = "";

  /** @param {string} id */
  constructor(id) {
    this.id = id;
    this.#title.dir = "auto";
    const head = make("div", "task-head", this.#mark, this.#title, this.#state);
    const actions = make("div", "task-actions", this.#open, this.#home, this.#cancel, this.#menu);
    this.node = make("div", "call task", head, this.#note, this.#ask, this.#result, this.#problem, actions);
    this.node.setAttribute("role", "group");
    this.node.dataset.task = id;
    this.#ask.hidden = this.#result.hidden = true;
    this.show();
  }

  /** Shows the task as it is now. */
  show() {
    const task = findTask(this.id);
    this.node.hidden = !task;
    if (!task) return;
    const { title, state, approval, conversation_id, work_id, run } = task, here = location.hash;
    const look = approval ? "waiting" : state === "waiting" ? "scheduled" : LOOKS[state];
    if (!this.node.classList.contains(look)) {
      this.node.className = `call task ${look}`;
      this.#mark.replaceChildren(...(look in MARKS ? [makeIcon(MARKS[look])] : []));
    }
    this.node.setAttribute("aria-label", t("taskNamed", { title }));
    setText(this.#title, title);
    setText(this.#state, describeState(task));
    setText(this.#note, describeProgress(task));
    this.#note.hidden = !this.#note.textContent;
    this.#open.href = addressOf(work_id);
    this.#home.href = addressOf(conversation_id);
    this.#open.hidden = !run || here === addressOf(work_id);
    this.#home.hidden = here === addressOf(conversation_id);
    this.#cancel.hidden = !["pending", "running", "waiting"].includes(state);
    this.#showApproval(task);
    this.#showResult(task);
    this.#showMenu(task);
  }

  /** @param {Task} task */
  #showApproval({ approval }) {
    const shown = JSON.stringify(approval ?? null); // a call may ask again, with another text
    if (this.#shownApproval === shown) return;
    this.#shownApproval = shown;
    this.#ask.hidden = !approval;
    if (!approval) return this.#ask.replaceChildren();
    const { call_id: call, name, text, params } = approval;
    const decide = (/** @type {boolean} */ approve) => this.#try(decideTask(this.id, call, approve));
    this.#ask.replaceChildren(
      make("p", "what", text || t("asksApproval", { name })),
      makeParamsBox(paramsIn(JSON.stringify({ params }))),
      make("div", "choices", makeButton(t("approve"), () => decide(true), { className: "primary" }),
        makeButton(t("decline"), () => decide(false))),
    );
  }

  /** @param {Task} task */
  #showResult({ summary, result }) {
    const text = summary || result || "";
    if (text === this.#shownResult && this.#result.childElementCount) return;
    this.#shownResult = text;
    this.#result.hidden = !text;
    const inside = make("div", "text plain", text), label = make("summary", "", makeIcon("open"), t("result"));
    const render = () => inside.replaceWith(renderMarkdown(text, []));
    this.#result.replaceChildren(label, makeScrollBox(t("result"), make("div", "", inside)));
    if (this.#result.open) render();
    else this.#result.addEventListener("toggle", render, { once: true });
  }

  /** @param {Task} task */
  #showMenu({ title, state, approval, next_run: next, every, start, paused }) {
    const isScheduled = state === "waiting" && !approval, isRunning = state === "pending" || state === "running";
    const options = {
      runNow: !isRunning && !approval && !(state === "canceled" && start), resume: isScheduled && paused,
      pause: isScheduled && !paused && Boolean(next && start),
      changeTime: isScheduled && Boolean(every || start), delete: true,
    };
    const shown = JSON.stringify([options, title]);
    if (shown === this.#shownChoices) return;
    this.#shownChoices = shown;
    const choices = [
      { on: options.runNow, label: t("runNow"), icon: "play", act: () => this.#try(runTask(this.id)) },
      { on: options.resume, label: t("resume"), icon: "play", act: () => this.#set({ paused: false }) },
      { on: options.pause, label: t("pause"), icon: "pause", act: () => this.#set({ paused: true }) },
      { on: options.changeTime, label: t("changeTime"), icon: "clock", act: () => this.#changeTime() },
      { on: true, label: t("delete"), icon: "delete", act: () => this.#delete(title), danger: true },
    ];
    const had = this.#menu.contains(document.activeElement), opener = makeMenuButton(t("options", { title }),
      choices.filter(({ on }) => on));
    this.#menu.replaceChildren(opener);
    if (had) opener.focus();
  }

  /** @param {object} fields */
  #set(fields) {
    return this.#try(changeTask(this.id, fields));
  }

  #changeTime() {
    const task = findTask(this.id);
    if (task) openTaskTime(task);
  }

  /** @param {string} title */
  async #delete(title) {
    const text = [t("deleteTaskWhat", { title })], act = () => deleteTask(this.id);
    await askConfirmation({ title: t("deleteTask"), text, label: t("delete"), act, danger: true });
  }

  /** @param {Promise<void>} action */
  async #try(action) {
    const focused = document.activeElement;
    this.#problem.textContent = await action.then(() => "", errorText);
    if (this.#problem.textContent) updateTask(this.id);
    else if (focused instanceof HTMLElement && !focused.checkVisibility()) this.#menu.querySelector("button")?.focus();
  }
}

/** @param {HTMLElement} node @param {string} text */
function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** @param {Task} task */
function describeState({ state, approval, paused, next_run: next }) {
  if (approval) return t("needsApproval");
  if (state === "waiting") return paused ? t("paused") : next ? t("nextTime", { time: formatTime(new Date(next)) }) : "";
  return t(STATES[state]);
}

/** @type {Record<string, Parameters<typeof t>[0]>} */
const STATES = {
  pending: "taskPending", running: "running", succeeded: "taskSucceeded", failed: "taskFailed", canceled: "taskCanceled",
};

/** What it does now, why it failed, or its schedule. @param {Task} task */
function describeProgress({ state, activity = "", reason = "", schedule = "", every = "", approval, time_zone: zone }) {
  const isHere = zone === Intl.DateTimeFormat().resolvedOptions().timeZone;
  const words = state === "waiting" && !approval ? describeSchedule(every, schedule, isHere ? "" : zone) : "";
  return [state === "running" ? activity : "", words, reason].filter(Boolean).join("\n");
}

/** @type {Map<string, TaskCard>} */
const cards = new Map(); // in the conversation, one per task

/** The card of a task in the conversation. The same card moves to its new place. @param {string} id */
export function taskCard(id) {
  const card = cards.get(id) ?? new TaskCard(id);
  cards.set(id, card);
  if (!findTask(id)) updateTask(id);
  return card;
}

tasks.addEventListener("changed", () => { for (const card of cards.values()) card.show(); });
window.addEventListener("hashchange", () => { for (const card of cards.values()) card.show(); });
