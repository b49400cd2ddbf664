// Room: one conversation in the list: opened, renamed in its place, deleted.

import { decided } from "./dialogs.js";
import { make } from "./dom.js";
import { menuButton } from "./menu.js";
import { request, told } from "./server.js";
import { t } from "./texts.js";

/** @typedef {import("./types.js").Heading} Heading */

/** What the list does when something became of one of its conversations. @typedef {{ renamed: (heading: Heading) => void, deleted: (id: string) => void }} Then */

export class Entry {
  /** @param {Heading} heading @param {Then} then */
  constructor(heading, then) {
    this.heading = heading;
    this.then = then;
    this.link = make("a", "entry-title");
    this.link.href = `#/c/${encodeURIComponent(heading.id)}`;
    this.link.dir = "auto";
    this.writing = make("span", "writing");
    this.writing.setAttribute("role", "img");
    this.writing.setAttribute("aria-label", t("isWritten"));
    this.about = make("p", "small entry-about");
    this.about.id = `about-${heading.id}`;
    this.link.setAttribute("aria-describedby", this.about.id);
    this.node = make("li", "entry");
    this.words = "";
    this.shown = "";
  }

  get path() {
    return `v1/conversations/${encodeURIComponent(this.heading.id)}`;
  }

  /**
   * @param {Heading} heading as it is now
   * @param {{ current: boolean, words: string }} look `words`: what was searched for
   */
  show(heading, { current, words }) {
    this.heading = heading;
    this.node.classList.toggle("current", current);
    if (current) this.link.setAttribute("aria-current", "page");
    else this.link.removeAttribute("aria-current");
    this.writing.hidden = !heading.running;
    const shown = JSON.stringify([heading.title, heading.found, heading.sources, words]);
    this.words = words;
    if (shown !== this.shown && !this.node.querySelector("input")) this.fill(words);
    this.shown = shown;
  }

  /** @param {string} words */
  fill(words) {
    const { title, found = "", sources } = this.heading;
    const ways = sources.filter((one) => one !== "chat").map((one) => one === "voice" ? t("voice") : one === "api" ? t("api") : one);
    this.link.textContent = title;
    this.link.title = title;
    this.about.replaceChildren(...(ways.length ? [`${ways.join(", ")} `] : []), ...marked(found, words));
    this.about.hidden = !this.about.textContent;
    this.options = menuButton(t("options", { title }), [
      { label: t("rename"), icon: "edit", act: () => this.rename() },
      { label: t("delete"), icon: "delete", act: () => this.delete(), danger: true },
    ]);
    this.node.replaceChildren(this.link, this.writing, this.about, this.options);
  }

  rename() {
    const { title } = this.heading;
    const input = make("input", "entry-input"), problem = make("p", "problem");
    input.type = "text";
    input.value = title;
    input.maxLength = 200;
    input.setAttribute("aria-label", t("newTitle", { title }));
    problem.setAttribute("role", "alert");
    let over = false;
    const leave = () => {
      const focused = document.activeElement === input;
      over = true;
      input.remove();
      this.fill(this.words);
      if (focused) this.options?.focus();
    };
    const save = async () => {
      const wanted = input.value.trim();
      if (over) return;
      if (!wanted || wanted === title) return leave();
      problem.textContent = await request("PATCH", this.path, { title: wanted }).then(saved, told);
    };
    const saved = (/** @type {Heading} */ heading) => {
      this.heading = { ...this.heading, title: heading.title };
      if (!over) leave();
      this.then.renamed(heading);
      return "";
    };
    input.onkeydown = (event) => {
      if (event.isComposing || !["Enter", "Escape"].includes(event.key)) return;
      event.preventDefault();
      if (event.key === "Enter") save();
      else leave();
    };
    input.onblur = () => { if (document.hasFocus()) save(); };
    this.node.replaceChildren(input, problem);
    input.select();
  }

  async delete() {
    const { id, title, running } = this.heading;
    const what = [t("deleteConversationWhat", { title }), t("deleteConversationKept"), ...(running ? [t("deleteRunning")] : [])];
    const act = () => request("DELETE", this.path).catch(unlessGone);
    if (await decided({ title: t("deleteConversation"), text: what, label: t("delete"), act, danger: true })) this.then.deleted(id);
  }
}

/** @param {Error & { status?: number }} error */
function unlessGone(error) {
  if (error.status !== 404) throw error; // somebody else deleted it
}

/**
 * The text, with the words that were searched for marked in it.
 * @param {string} text
 * @param {string} words
 */
export function marked(text, words) {
  const parts = words.split(/\s+/).filter(Boolean).map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  if (!text || !parts.length) return text ? [text] : [];
  const pieces = text.split(new RegExp(`(${parts.join("|")})`, "giu"));
  return pieces.map((piece, n) => n % 2 ? make("mark", "", piece) : piece);
}
