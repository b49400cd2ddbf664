// Files for the next message: attached by button, drop or paste, checked when added, and detached when it is sent.

import { find, make, makeButton, makeIcon } from "../base/dom.js";
import { makeAttachment, partsOf } from "../base/files.js";
import { tabStorage } from "../base/storage.js";
import { formatNames, formatSize, t } from "../base/texts.js";

/** @typedef {import("../base/types.js").Attached} Attached */

const ROOM = 1048576; // bytes of a request reserved for everything except files

const list = find("files", HTMLUListElement), picker = find("picker", HTMLInputElement);

/** @type {Attached[]} */
let files = [];
/** @type {import("../base/files.js").Part[]} */
const early = []; // added before the limits were known
/** @type {import("../base/types.js").Limits | null} */
let limits = null;
/** @type {(problem: string) => void} */
let report;

/**
 * Starts to accept files.
 * @param {(problem: string) => void} problems called with why files could not be attached; empty on success
 */
export function startAttaching(problems) {
  report = problems;
  find("attach", HTMLButtonElement).onclick = () => picker.click();
  picker.onchange = () => {
    attachFiles([...picker.files ?? []]);
    picker.value = "";
  };
  acceptDrops();
  const lost = tabStorage.get("files")?.split("/") ?? [];
  if (lost.length) report(t("lostFiles", { count: lost.length, names: formatNames(lost) }));
}

/** @param {import("../base/types.js").Limits} most */
export function startAttachments(most) {
  const attach = find("attach", HTMLButtonElement);
  limits = most;
  const limitsText = { count: most.files, size: formatSize(most.file_bytes) };
  attach.title = t("attachMost", limitsText);
  attach.setAttribute("aria-description", attach.title);
  document.querySelector("main")?.setAttribute("data-drop", t("drop", limitsText));
  if (early.length) addParts(early);
}

/** The attached files. */
export const attached = () => files;

/**
 * Attaches files from this device, within the limits.
 * @param {File[]} added
 */
export function attachFiles(added) {
  addParts(added.map((file) => ({ folder: "", files: [file] })));
}

/**
 * Attaches dropped or pasted files.
 * @param {DataTransfer} data
 */
export async function attachFrom(data) {
  addParts(await partsOf(data));
}

/** @param {import("../base/files.js").Part[]} parts */
function addParts(parts) {
  if (!limits) return void early.push(...parts);
  const most = limits, refused = parts.map((part) => problemOf(part, most.files));
  const accepted = parts.flatMap(({ files }, n) => refused[n] ? [] : files ?? []);
  const fit = accepted.slice(0, most.files - files.length), over = accepted.slice(fit.length).map(({ name }) => name);
  const problems = [...refused, ...fit.map((file) => attachFile(file, most))].filter(Boolean);
  if (over.length) problems.push(t("tooMany", { count: most.files, names: formatNames(over) }));
  show();
  report(problems.join("\n"));
}

/** @param {import("../base/files.js").Part} part @param {number} most */
function problemOf({ folder: name, files }, most) {
  if (!name) return "";
  if (!files) return t("goneFile", { name });
  if (!files.length) return t("emptyFolder", { name });
  return files.length > most ? t("largeFolder", { name, count: most }) : "";
}

/**
 * Replaces the attached files.
 * @param {Attached[]} others
 */
export function replaceFiles(others) {
  files = [...others];
  show();
}

/** Returns the attached files and detaches them. */
export function takeFiles() {
  const detached = files;
  replaceFiles([]);
  return detached;
}

/** Problems with files that were moved or changed: sending them would look like a lost connection. */
export async function findUnreadable() {
  const tried = files.map(({ file, name }) => {
    return file?.slice(0, 1).arrayBuffer().then(() => "", () => t("goneFile", { name }));
  });
  return (await Promise.all(tried)).filter(Boolean).join("\n");
}

/** @param {File} file @param {import("../base/types.js").Limits} limits @returns {string} the problem, if any */
function attachFile(file, { file_bytes, body_bytes }) {
  const { name } = file, together = files.reduce((sum, other) => sum + (other.file?.size ?? 0), file.size);
  if (!file.size) return t("emptyFile", { name });
  if (file.size > file_bytes) return t("largeFile", { name, size: formatSize(file_bytes) });
  if (together > body_bytes - ROOM) return t("largeFiles", { name, size: formatSize(body_bytes - ROOM) });
  files.push(makeAttachment(file));
  return "";
}

function show() {
  const names = files.filter(({ file }) => file).map(({ name }) => name).join("/"); // file names cannot contain a slash
  tabStorage.put("files", names || null);
  list.replaceChildren(...files.map(itemOf));
}

/** @param {Attached} one */
function itemOf(one) {
  const look = { icon: "close", className: "quiet square" };
  const remove = makeButton(t("remove", { name: one.name }), () => detach(one), look);
  const name = make("span", "file-name", one.name);
  name.dir = "auto";
  name.title = one.name;
  const about = make("span", "small", [extensionOf(one), formatSize(one.size)].filter(Boolean).join(" · "));
  return make("li", "file", makePicture(one), make("span", "file-about", name, about), remove);
}

/** @param {Attached} one */
function makePicture(one) {
  const drawing = make("span", "file-icon", makeIcon("file"));
  if (!one.preview) return drawing;
  const image = make("img");
  image.alt = "";
  image.onerror = () => image.replaceWith(drawing); // the browser does not support this image format
  image.src = one.preview;
  return image;
}

/** @param {Attached} one */
function extensionOf({ name }) {
  return (/\.(\w{1,8})$/.exec(name)?.[1] ?? "").toUpperCase();
}

/** @param {Attached} one */
function detach(one) {
  const at = files.indexOf(one);
  replaceFiles(files.filter((other) => other !== one));
  report("");
  const next = list.querySelectorAll("button")[Math.min(at, files.length - 1)];
  (next ?? find("box", HTMLTextAreaElement)).focus();
}

function acceptDrops() {
  const zone = document.documentElement;
  document.addEventListener("dragover", (event) => {
    if (!bringsFiles(event)) return;
    event.preventDefault();
    zone.classList.add("dropping");
  });
  document.addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) zone.classList.remove("dropping");
  });
  document.addEventListener("drop", (event) => {
    zone.classList.remove("dropping");
    if (!bringsFiles(event)) return;
    event.preventDefault();
    if (event.dataTransfer) attachFrom(event.dataTransfer);
  });
}

/** @param {DragEvent} event */
function bringsFiles({ dataTransfer }) {
  return dataTransfer?.types.includes("Files") && !document.querySelector("dialog[open]");
}
