// Room: files to go with the next message: by button, drop and paste; checked when added, shown, taken when it is sent.

import { button, find, icon, make } from "./dom.js";
import { size, t } from "./texts.js";

/** @typedef {import("./types.js").Attached} Attached */

const ROOM = 1048576; // bytes of a request that stay for the message and all that is no file

const list = find("files", HTMLUListElement), picker = find("picker", HTMLInputElement);

/** @type {Attached[]} */
let files = [];
/** @type {import("./types.js").Limits} */
let limits;
/** @type {(problem: string) => void} */
let tell;

/**
 * @param {import("./types.js").Limits} most
 * @param {(problem: string) => void} problems is told what could not be attached and why, or nothing when all could
 */
export function startAttachments(most, problems) {
  limits = most;
  tell = problems;
  const attach = find("attach", HTMLButtonElement);
  attach.title = t("attachMost", { count: most.files, size: size(most.file_bytes) });
  attach.setAttribute("aria-description", attach.title);
  attach.onclick = () => picker.click();
  picker.onchange = () => {
    add([...picker.files ?? []]);
    picker.value = "";
  };
  takeDropped();
}

/** What is attached. */
export const attached = () => files;

/**
 * Adds files of this machine, as far as they may be.
 * @param {File[]} added
 */
export function add(added) {
  const problems = added.map(attach).filter(Boolean);
  show();
  tell(problems.join("\n"));
}

/**
 * Attaches these files instead of those that are.
 * @param {Attached[]} others
 */
export function put(others) {
  files = [...others];
  show();
}

/** Hands over what is attached; nothing is then. */
export function take() {
  const taken = files;
  put([]);
  return taken;
}

/** Those that cannot be read any more: a file that was moved or changed would fail as if the server were away. */
export async function unreadable() {
  const tried = files.map(({ file, name }) => {
    return file?.slice(0, 1).arrayBuffer().then(() => "", () => t("goneFile", { name }));
  });
  return (await Promise.all(tried)).filter(Boolean).join("\n");
}

/** @param {File} file @returns {string} what is wrong with it */
function attach(file) {
  const { name } = file, together = files.reduce((sum, other) => sum + (other.file?.size ?? 0), file.size);
  if (files.length >= limits.files) return t("tooMany", { name, count: limits.files });
  if (!file.size) return t("emptyFile", { name });
  if (file.size > limits.file_bytes) return t("largeFile", { name, size: size(limits.file_bytes) });
  if (together > limits.body_bytes - ROOM) return t("largeFiles", { name, size: size(limits.body_bytes - ROOM) });
  const preview = file.type.startsWith("image/") ? URL.createObjectURL(file) : null;
  files.push({ name, type: file.type, size: file.size, file, id: null, preview });
  return "";
}

function show() {
  list.replaceChildren(...files.map(shown));
}

/** @param {Attached} one */
function shown(one) {
  const remove = button(t("remove", { name: one.name }), () => drop(one), { icon: "close", className: "quiet square" });
  const name = make("span", "file-name", one.name);
  name.dir = "auto";
  name.title = one.name;
  const about = make("span", "small", [kind(one), size(one.size)].filter(Boolean).join(" · "));
  return make("li", "file", picture(one), make("span", "file-about", name, about), remove);
}

/** @param {Attached} one */
function picture(one) {
  const drawing = make("span", "file-icon", icon("file"));
  if (!one.preview) return drawing;
  const image = make("img");
  image.alt = "";
  image.onerror = () => image.replaceWith(drawing); // a kind of picture that this browser does not know
  image.src = one.preview;
  return image;
}

/** @param {Attached} one */
function kind({ name, type }) {
  const ending = /\.(\w{1,8})$/.exec(name)?.[1] ?? type.split("/")[1] ?? "";
  return ending.slice(0, 8).toUpperCase();
}

/** @param {Attached} one */
function drop(one) {
  const at = files.indexOf(one);
  files = files.filter((other) => other !== one);
  if (one.file && one.preview) URL.revokeObjectURL(one.preview);
  show();
  tell("");
  const next = list.querySelectorAll("button")[Math.min(at, files.length - 1)];
  (next ?? find("box", HTMLTextAreaElement)).focus();
}

function takeDropped() {
  const zone = document.documentElement;
  document.querySelector("main")?.setAttribute("data-drop", t("drop"));
  document.addEventListener("dragover", (event) => {
    if (!taken(event)) return;
    event.preventDefault();
    zone.classList.add("dropping");
  });
  document.addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) zone.classList.remove("dropping");
  });
  document.addEventListener("drop", (event) => {
    zone.classList.remove("dropping");
    if (!taken(event)) return;
    event.preventDefault();
    add([...event.dataTransfer?.files ?? []]);
  });
}

/** @param {DragEvent} event */
function taken(event) {
  return event.dataTransfer?.types.includes("Files") && !document.querySelector("dialog[open]");
}
