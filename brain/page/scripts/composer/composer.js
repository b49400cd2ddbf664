// The box where a person writes, sends, adds to an answer, or edits an earlier message.

import { log } from "../answer/scrolling.js";
import { find, hasTouchScreen, make, makeButton } from "../base/dom.js";
import { commandKey } from "../base/shortcuts.js";
import { tabStorage } from "../base/storage.js";
import { t } from "../base/texts.js";
import { noteTyping } from "../base/tasks.js";
import { conversation } from "../conversation/conversation.js";
import { enterSends, settings } from "../dialogs/settings.js";
import { openNewTask } from "../dialogs/task_form.js";
import {
  attachFiles, attachFrom, attached, findUnreadable, replaceFiles, startAttaching, startAttachments, takeFiles,
} from "./attachments.js";

/** @typedef {import("../base/types.js").Attached} Attached */

const TASK = /^\s*\/task(?:\s+|$)/i; // starts a message that creates a task
const DOUBLE = 500; // ms in which a second click on Send does not click Stop, which takes its place

const form = find("composer", HTMLFormElement), box = find("box", HTMLTextAreaElement);
const problem = find("problem", HTMLParagraphElement), hint = find("hint", HTMLSpanElement);
const send = find("send", HTMLButtonElement), stop = find("stop", HTMLButtonElement);
const steer = find("steer", HTMLButtonElement);
const editStrip = make("p", "editing", t("editing"), makeButton(t("cancel"), leaveEdit, { className: "quiet" }));

/**
 * The message that is edited, its conversation, and the draft that was in the box before.
 * @type {{ replaces: string, of: string | null, message: string, files: Attached[] } | null}
 */
let editing = null;
let characters = 100_000; // until the limit is known
let justSent = 0; // a timer; 0 when a click no longer counts as a second one
let ready = false, early = false; // whether the server answered, and whether a message was sent before that

/** Starts the box. A message can be written before the limits of the server are known. */
export function startWriting() {
  form.onsubmit = onSubmit;
  box.onkeydown = onBoxKey;
  box.oninput = () => {
    problem.textContent = "";
    if (box.value) noteTyping(conversation.id);
    onChange();
  };
  box.onpaste = onPaste;
  box.onbeforeinput = onInsert;
  stop.onclick = () => conversation.stop();
  document.addEventListener("keydown", onEscape);
  document.addEventListener("keydown", onTyping);
  conversation.addEventListener("state", show);
  conversation.addEventListener("compose", (event) => compose(/** @type {CustomEvent} */ (event).detail));
  conversation.addEventListener("opened", onOpened);
  conversation.addEventListener("write", focus);
  settings.addEventListener("changed", show);
  write(box.value || (tabStorage.get("draft") ?? ""));
  startAttaching(complain);
  focus();
}

/** Focuses the box, except on touch screens, where a keyboard would cover the page. */
function focus() {
  if (!hasTouchScreen) box.focus();
}

/** @param {string} text */
function complain(text) {
  problem.textContent = text;
  focus();
}

/** @param {import("../base/types.js").Start} start */
export function startComposer({ limits }) {
  characters = limits.message_characters;
  startAttachments(limits);
  ready = true;
  if (early) form.requestSubmit();
}

/** @param {SubmitEvent} event */
function onSubmit(event) {
  event.preventDefault();
  if (!ready) early = true;
  else if (TASK.test(box.value) && !editing) createTask();
  else if (conversation.state === "idle") sendIt();
  else if (conversation.state === "writing") steerIt();
}

async function sendIt() {
  problem.textContent = problemOf(box.value) || (attached().length ? await findUnreadable() : "");
  if (problem.textContent || !box.value.trim() || conversation.state !== "idle") return;
  const message = box.value, files = takeFiles(), replaces = editing?.replaces ?? null;
  write("");
  leaveEdit();
  justSent = window.setTimeout(() => {
    justSent = 0;
    show();
  }, DOUBLE);
  conversation.send(message, files, replaces);
}

/** Opens the dialog for a new task. The text stays in the box until there is a task. */
function createTask() {
  const given = box.value;
  openNewTask({
    prompt: given.replace(TASK, ""),
    conversation: conversation.id,
    created: (task) => {
      if (box.value === given) write("");
      conversation.showTask(task);
    },
    left: (prompt) => { if (box.value === given) write(`/task ${prompt}`); },
  });
}

/** @param {string} message */
function problemOf(message) {
  if (!message.trim()) return attached().length ? t("needsMessage") : "";
  return message.length > characters ? t("longMessage", { count: characters }) : "";
}

async function steerIt() {
  const message = box.value;
  problem.textContent = message.length > characters ? problemOf(message) : attached().length ? t("filesLater") : "";
  if (!message.trim() || message.length > characters) return;
  write("");
  if (!await conversation.steer(message)) write(joinTexts(message, box.value)); // the turn had ended
}

/** @param {KeyboardEvent} event */
function onBoxKey(event) {
  if (event.key !== "Enter" || event.isComposing) return;
  const sends = event.ctrlKey || event.metaKey || (enterSends() && !event.shiftKey);
  if (!sends) return;
  event.preventDefault();
  if (!event.repeat) form.requestSubmit();
}

/** @param {KeyboardEvent} event */
function onEscape(event) {
  if (event.key !== "Escape" || event.defaultPrevented || event.isComposing) return;
  if (document.querySelector("dialog[open], :popover-open")) return;
  if (conversation.state !== "idle") conversation.stop();
  else if (editing) leaveEdit();
}

/** Text that is typed while no field has the focus goes to the box. @param {KeyboardEvent} event */
function onTyping({ key, ctrlKey, metaKey, altKey, target }) {
  if (key.length > 1 || key === " " || ctrlKey || metaKey || altKey) return;
  if (target !== log && target !== document.body || document.querySelector("dialog[open], :popover-open")) return;
  box.focus();
}

/** @param {ClipboardEvent} event */
function onPaste(event) {
  const data = event.clipboardData;
  if (!data?.files.length || data.getData("text/plain")) return; // table cells: text with an image
  event.preventDefault();
  attachFrom(data);
}

/** Attaches text that is too long for a message as a file: the browser would freeze. @param {InputEvent} event */
function onInsert(event) {
  const text = event.data ?? "", stays = box.value.length - (box.selectionEnd - box.selectionStart);
  if (text.length < 2 || stays + text.length <= characters) return;
  event.preventDefault();
  attachFiles([new File([text], t("pastedFile"), { type: "text/plain" })]);
  problem.textContent ||= t("pasted");
}

/**
 * Puts a message that could not be sent into the box, or an earlier one to edit.
 * @param {{ message: string, files?: Attached[], replaces?: string | null }} given
 */
function compose({ message, files = [], replaces = null }) {
  const before = { message: box.value, files: attached() };
  problem.textContent = "";
  if (replaces) {
    editing ??= { replaces, of: conversation.id, ...before };
    editing.replaces = replaces;
    conversation.edits(replaces);
    write(message);
    replaceFiles(files);
  } else {
    write(joinTexts(message, before.message));
    replaceFiles([...files, ...before.files]);
  }
  show();
  box.focus();
}

/** Cancels the edit of an earlier message and restores the draft. */
function leaveEdit() {
  if (!editing) return;
  const { message, files } = editing;
  editing = null;
  conversation.edits(null);
  problem.textContent = "";
  write(message);
  replaceFiles(files);
  show();
  box.focus();
}

function onOpened() {
  if (editing && editing.of !== conversation.id) leaveEdit();
  if (!document.activeElement?.matches("input, select, textarea, dialog *")) focus();
}

/** @param {string} first @param {string} then */
function joinTexts(first, then) {
  return then.trim() ? `${first}\n\n${then}` : first;
}

/** @param {string} text */
function write(text) {
  box.value = text;
  onChange();
}

function onChange() {
  if (!editing) tabStorage.put("draft", box.value || null);
  if (!CSS.supports("field-sizing", "content")) grow();
  show();
}

function grow() {
  box.style.height = "auto";
  box.style.height = `${box.scrollHeight}px`;
}

/** Shows the possible actions: send, stop, or add to the answer when the box has text. */
function show() {
  const idle = conversation.state === "idle", writing = conversation.state === "writing";
  const focused = [send, stop, steer].find((one) => one === document.activeElement);
  send.hidden = !idle;
  stop.hidden = idle;
  stop.disabled = conversation.state === "stopping" || justSent > 0;
  steer.hidden = !writing || !box.value.trim();
  if (focused?.hidden || focused?.disabled) focus();
  if (!editing) editStrip.remove();
  else if (!editStrip.isConnected) form.prepend(editStrip);
  box.placeholder = t(writing ? "steerShort" : "messageShort");
  box.enterKeyHint = enterSends() ? "send" : "enter";
  hint.textContent = writing ? t("hintWriting") : enterSends() ? t("hint") : t("hintLines", { key: commandKey });
}
