// A message of the user.

import { makeCopyButton } from "../base/clipboard.js";
import { make, makeButton, makeIcon } from "../base/dom.js";
import { formatSize, formatTime, t } from "../base/texts.js";

/**
 * @typedef {import("../base/types.js").Attached} Attached
 * @typedef {object} QuestionData
 * @property {string} text
 * @property {Attached[]} files
 * @property {string | null} [id]
 * @property {string | null} [time]
 * @property {string} [source] where it is from
 */

const IMAGES = ["image/png", "image/jpeg", "image/gif", "image/webp"];
const LONG = 1500; // characters; longer messages are folded, as are those with more lines than LINES
const LINES = 14;

/** A message with its files and buttons. */
export class Question {
  /**
   * @param {QuestionData} data
   * @param {() => void} edit
   */
  constructor({ text, files, id = null, time = null, source = "" }, edit) {
    this.text = text;
    this.files = files;
    this.id = id;
    this.time = time;
    this.source = source;
    if (source === "report") { // the message is Brain's own note
      this.node = make("h2", "small report", t("report"));
      return;
    }
    const body = make("div", "message-text", text);
    const actions = make("div", "actions", makeTime(time), makeCopyButton(t("copy"), text),
      makeButton(t("edit"), edit, { icon: "edit", className: "quiet square edit" }));
    const sent = files.length ? [makeFileList(files)] : [];
    this.node = make("article", "question", ...sent, body, ...makeFold(body, text), actions);
    this.node.setAttribute("aria-label", t("you"));
  }
}

/** @param {string | null} time */
function makeTime(time) {
  const at = time ? new Date(time) : new Date();
  const node = make("time", "small", formatTime(at));
  node.dateTime = at.toISOString();
  return node;
}

/**
 * @param {HTMLElement} body
 * @param {string} text
 */
function makeFold(body, text) {
  if (text.length < LONG && text.split("\n", LINES + 1).length <= LINES) return [];
  body.classList.add("folded");
  const fold = makeButton(t("showMore"), () => {
    const folded = body.classList.toggle("folded");
    fold.textContent = t(folded ? "showMore" : "showLess");
    fold.setAttribute("aria-expanded", String(!folded));
  }, { className: "quiet unfold" });
  fold.setAttribute("aria-expanded", "false");
  return [fold];
}

/** @param {Attached[]} files */
function makeFileList(files) {
  return make("ul", "sent-files", ...files.map((file) => make("li", "", makeFile(file))));
}

/** @param {Attached} file */
function makeFile(file) {
  const picture = IMAGES.includes(file.type) && file.preview;
  const inside = picture ? makeImage(file) : makeFileLabel(file);
  const kind = picture ? "sent-image" : "sent-file";
  if (!file.preview || (!picture && file.id === null)) return make("span", kind, ...inside);
  const link = make("a", kind, ...inside);
  link.href = file.preview;
  link.title = file.name;
  link.target = "_blank";
  link.rel = "noopener";
  return link;
}

/** @param {Attached} file */
function makeFileLabel(file) {
  return [makeIcon("file"), make("span", "name", file.name), make("span", "small", formatSize(file.size))];
}

/** @param {Attached} file */
function makeImage(file) {
  const node = make("img");
  node.src = /** @type {string} */ (file.preview);
  node.alt = file.name;
  node.loading = "lazy";
  return [node];
}
