// Composer: where a message is written, sent, put into an answer that is being written, or written anew.

import { log } from "../answer/reading.js";
import { conversation } from "../conversation/conversation.js";
import { enterSends, settings } from "../dialogs/settings.js";
import { button, find, make, touched } from "../ground/dom.js";
import { keptHere } from "../ground/keeping.js";
import { commandKey } from "../ground/shortcuts.js";
import { t } from "../ground/texts.js";
import { add, addFrom, attached, put, startAttaching, startAttachments, take, unreadable } from "./attachments.js";

/** @typedef {import("../ground/types.js").Attached} Attached */

const DOUBLE = 500; // ms in which a second click on the arrow is no click on what stands in its place

const form = find("composer", HTMLFormElement), box = find("box", HTMLTextAreaElement);
const problem = find("problem", HTMLParagraphElement), hint = find("hint", HTMLSpanElement);
const send = find("send", HTMLButtonElement), stop = find("stop", HTMLButtonElement);
const steer = find("steer", HTMLButtonElement);
const editStrip = make("p", "editing", t("editing"), button(t("cancel"), leaveEdit, { className: "quiet" }));

/**
 * The message that is written anew, the conversation that it is of, and what stood in the box before.
 * @type {{ replaces: string, of: string | null, message: string, files: Attached[] } | null}
 */
let editing = null;
let characters = 100_000; // until the server has said how many there may be
let justSent = 0; // the timer until a click is no second one any more
let ready = false, early = false; // whether the server has answered, and whether something was sent before

/** Lets a message be written while the server is still asked what may be sent. */
export function startWriting() {
  form.onsubmit = submitted;
  box.onkeydown = keyed;
  box.oninput = () => {
    problem.textContent = "";
    changed();
  };
  box.onpaste = pasted;
  box.onbeforeinput = inserted;
  stop.onclick = () => conversation.stop();
  document.addEventListener("keydown", escaped);
  document.addEventListener("keydown", typed);
  conversation.addEventListener("state", show);
  conversation.addEventListener("compose", (event) => compose(/** @type {CustomEvent} */ (event).detail));
  conversation.addEventListener("opened", opened);
  conversation.addEventListener("write", focus);
  settings.addEventListener("changed", show);
  write(box.value || (keptHere.get("draft") ?? ""));
  startAttaching(complain);
  focus();
}

/** Not where it would open a keyboard over the page. */
function focus() {
  if (!touched) box.focus();
}

/** @param {string} text */
function complain(text) {
  problem.textContent = text;
  focus();
}

/** @param {import("../ground/types.js").Start} start */
export function startComposer({ limits }) {
  characters = limits.message_characters;
  startAttachments(limits);
  ready = true;
  if (early) sendIt();
}

/** @param {SubmitEvent} event */
function submitted(event) {
  event.preventDefault();
  if (!ready) early = true;
  else if (conversation.state === "idle") sendIt();
  else if (conversation.state === "writing") steerIt();
}

async function sendIt() {
  problem.textContent = troubleOf(box.value) || (attached().length ? await unreadable() : "");
  if (problem.textContent || !box.value.trim() || conversation.state !== "idle") return;
  const message = box.value, files = take(), replaces = editing?.replaces ?? null;
  write("");
  leaveEdit();
  justSent = window.setTimeout(() => {
    justSent = 0;
    show();
  }, DOUBLE);
  conversation.send(message, files, replaces);
}

/** @param {string} message */
function troubleOf(message) {
  if (!message.trim()) return attached().length ? t("needsMessage") : "";
  return message.length > characters ? t("longMessage", { count: characters }) : "";
}

async function steerIt() {
  const message = box.value;
  problem.textContent = message.length > characters ? troubleOf(message) : attached().length ? t("filesLater") : "";
  if (!message.trim() || message.length > characters) return;
  write("");
  if (!await conversation.steer(message)) write(joined(message, box.value)); // its turn was over
}

/** @param {KeyboardEvent} event */
function keyed(event) {
  if (event.key !== "Enter" || event.isComposing) return;
  const sends = event.ctrlKey || event.metaKey || (enterSends() && !event.shiftKey);
  if (!sends) return;
  event.preventDefault();
  if (!event.repeat) form.requestSubmit();
}

/** @param {KeyboardEvent} event */
function escaped(event) {
  if (event.key !== "Escape" || event.defaultPrevented || event.isComposing) return;
  if (document.querySelector("dialog[open], :popover-open")) return;
  if (conversation.state !== "idle") conversation.stop();
  else if (editing) leaveEdit();
}

/** What is typed while nothing that takes letters has the focus is meant for the box. @param {KeyboardEvent} event */
function typed({ key, ctrlKey, metaKey, altKey, target }) {
  if (key.length > 1 || key === " " || ctrlKey || metaKey || altKey) return;
  if (target !== log && target !== document.body || document.querySelector("dialog[open], :popover-open")) return;
  box.focus();
}

/** @param {ClipboardEvent} event */
function pasted(event) {
  const data = event.clipboardData;
  if (!data?.files.length || data.getData("text/plain")) return; // cells of a table bring a picture, and mean text
  event.preventDefault();
  addFrom(data);
}

/** Lets no text in that is too long for a message: the browser would stand still. @param {InputEvent} event */
function inserted(event) {
  const text = event.data ?? "", stays = box.value.length - (box.selectionEnd - box.selectionStart);
  if (text.length < 2 || stays + text.length <= characters) return;
  event.preventDefault();
  add([new File([text], t("pastedFile"), { type: "text/plain" })]);
  problem.textContent ||= t("pasted");
}

/**
 * Takes a message back that could not be sent, or an earlier one to be written anew.
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
    put(files);
  } else {
    write(joined(message, before.message));
    put([...files, ...before.files]);
  }
  show();
  box.focus();
}

/** Gives up writing an earlier message anew; what stood in the box before is there again. */
function leaveEdit() {
  if (!editing) return;
  const { message, files } = editing;
  editing = null;
  conversation.edits(null);
  problem.textContent = "";
  write(message);
  put(files);
  show();
  box.focus();
}

function opened() {
  if (editing && editing.of !== conversation.id) leaveEdit();
  if (!document.activeElement?.matches("input, select, textarea, dialog *")) focus();
}

/** @param {string} first @param {string} then */
function joined(first, then) {
  return then.trim() ? `${first}\n\n${then}` : first;
}

/** @param {string} text */
function write(text) {
  box.value = text;
  changed();
}

function changed() {
  if (!editing) keptHere.put("draft", box.value || null);
  if (!CSS.supports("field-sizing", "content")) grow();
  show();
}

function grow() {
  box.style.height = "auto";
  box.style.height = `${box.scrollHeight}px`;
}

/** Shows what can be done now: to send, to stop, or to steer as soon as there is something to say. */
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
