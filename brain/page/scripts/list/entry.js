// One conversation in the list: open, rename, delete.

import { addressOf } from "../base/address.js";
import { askConfirmation } from "../base/dialog.js";
import { make, makeProblemLine } from "../base/dom.js";
import { makeMenuButton } from "../base/menu.js";
import { errorText, request, unlessGone } from "../base/server.js";
import { tasksOf } from "../base/tasks.js";
import { t } from "../base/texts.js";
import { patternOf } from "../conversation/highlights.js";

/**
 * @typedef {import("../base/types.js").Listed} Listed
 * @typedef {{ renamed: (heading: Listed) => void, deleted: (id: string) => void }} Then what the list does then
 */

/** Where a conversation is from, unless it was typed here. @type {Record<string, string>} */
const WAYS = { voice: t("voice"), api: t("api") };

/** Markdown marks, which excerpts leave out. */
const SIGNS = /\*\*|__|~~|`+|(?<=^|\s)#+(?=\s)|!?\[(?=[^\]]*\]\()|\]\([^)\s]*\)?|\|(?:\s*:?-{3,}:?\s*\|)*/g;

export class Entry {
  /** @param {Listed} heading @param {Then} then */
  constructor(heading, then) {
    this.heading = heading;
    this.then = then;
    this.link = make("a", "entry-title");
    this.link.href = addressOf(heading.id);
    this.link.dir = "auto";
    this.writing = make("span", "writing");
    this.writing.setAttribute("role", "img");
    this.writing.setAttribute("aria-label", t("answering"));
    this.about = make("p", "small entry-about");
    this.about.id = `about-${heading.id}`;
    this.link.setAttribute("aria-describedby", this.about.id);
    this.options = makeMenuButton("", [
      { label: t("rename"), icon: "edit", act: () => this.rename() },
      { label: t("delete"), icon: "delete", act: () => this.delete(), danger: true },
    ]);
    this.node = make("li", "entry", this.link, this.writing, this.about, this.options);
  }

  get path() {
    return `v1/conversations/${encodeURIComponent(this.heading.id)}`;
  }

  /**
   * @param {Listed} heading its present data
   * @param {{ current: boolean, words: string, isUnread: boolean }} look `words`: the search
   */
  show(heading, { current, words, isUnread }) {
    const { title, running, sources, private: isPrivate = false, found = "" } = (this.heading = heading);
    const from = sources.map((source) => WAYS[source] ?? "");
    const ways = [isUnread ? t("unread") : "", isPrivate ? t("private") : "", ...from].filter(Boolean).join(", ");
    this.node.classList.toggle("current", current);
    this.node.classList.toggle("unread", isUnread);
    if (current) this.link.setAttribute("aria-current", "page");
    else this.link.removeAttribute("aria-current");
    this.link.textContent = this.link.title = title;
    this.options.title = t("options", { title });
    this.options.setAttribute("aria-label", this.options.title);
    this.writing.hidden = !running;
    const excerpt = found.replace(SIGNS, (sign) => sign[0] === "|" ? " " : "");
    this.about.replaceChildren(ways && `${ways} `, ...markWords(excerpt, words));
    this.about.hidden = !ways && !found;
  }

  /** Replaces the title by a field for a new one. */
  rename() {
    const { title } = this.heading, before = [...this.node.children];
    const input = make("input", "entry-input"), problem = makeProblemLine();
    input.type = "text";
    input.value = title;
    input.maxLength = 200;
    input.setAttribute("aria-label", t("newTitle", { title }));
    const close = () => {
      const focused = document.activeElement === input;
      input.onblur = null;
      this.node.replaceChildren(...before);
      if (focused) this.options.focus();
    };
    const save = async () => {
      const newTitle = input.value.trim();
      if (!newTitle || newTitle === title) return close();
      problem.textContent = await request("PATCH", this.path, { title: newTitle }).then(saved, errorText);
    };
    const saved = (/** @type {Listed} */ heading) => {
      if (input.isConnected) close();
      this.then.renamed(heading);
      return "";
    };
    input.onkeydown = (event) => {
      if (event.isComposing || !["Enter", "Escape"].includes(event.key)) return;
      event.preventDefault();
      if (event.key === "Enter") save();
      else close();
    };
    input.onblur = () => { if (document.hasFocus() && input.isConnected) save(); };
    this.node.replaceChildren(input, problem);
    input.select();
  }

  async delete() {
    const { id, title, running } = this.heading;
    const text = [t("deleteConversationWhat", { title }), t("deleteConversationFacts")];
    if (running) text.push(t("deleteRunning"));
    if (tasksOf(id).length) text.push(t("deleteConversationTasks"));
    const act = () => request("DELETE", this.path).catch(unlessGone);
    const done = await askConfirmation({ title: t("deleteConversation"), text, label: t("delete"), act, danger: true });
    if (done) this.then.deleted(id);
  }
}

/**
 * The text with marks around the words of the search.
 * @param {string} text
 * @param {string} words
 */
function markWords(text, words) {
  const pattern = patternOf(words);
  if (!text || !pattern) return text ? [text] : [];
  const pieces = text.split(new RegExp(`(${pattern.source})`, "giu"));
  return pieces.map((piece, n) => n % 2 ? make("mark", "", piece) : piece);
}
