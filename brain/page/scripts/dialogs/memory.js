// The memory dialog: find, add, change and delete facts and conversation summaries.

import { openDialog } from "../base/dialog.js";
import { find, hasTouchScreen, make, makeButton, makeProblemLine } from "../base/dom.js";
import { errorText, request } from "../base/server.js";
import { makeSwitch } from "../base/switch.js";
import { notifyTabs } from "../base/tabs.js";
import { t } from "../base/texts.js";
import { CATEGORIES, makeMemoryForm } from "./memory_form.js";
import { makeMemoryItem } from "./memory_item.js";
import { isMemoryLeftOut, setMemoryLeftOut, setRecall } from "./recall.js";

/** @typedef {import("../base/types.js").Item} Item */

const PART = 50, PAUSE = 200; // items at once; ms without a key before a search

export function startMemory() {
  find("memory-open", HTMLButtonElement).onclick = () => new MemoryDialog();
}

class MemoryDialog {
  constructor() {
    this.problem = makeProblemLine();
    this.note = make("div", "memory-note");
    this.note.setAttribute("role", "status");
    this.sections = [...CATEGORIES, null].map((category) => new Section(category, this));
    this.search = makeSearchBox(() => this.load());
    this.adding = make("div", "adding");
    this.wasSet = false; // whether a person set the switch: lists that were requested before still have its old state
    this.recall = makeRecallSwitches((on) => this.set(on));
    this.add = makeButton(t("addFact"), () => this.write(), { icon: "plus", text: true });
    const head = make("div", "row memory-head", this.search, this.add);
    this.dialog = openDialog(t("memory"), [this.recall.node, head, this.adding, this.problem, this.note,
      ...this.sections.map(({ node }) => node)], { className: "wide-dialog" });
    this.loaded = this.load();
  }

  get words() {
    return this.search.value.trim();
  }

  async load() {
    const words = this.words;
    const problem = await Promise.all(this.sections.map((section) => section.load(words))).then(() => "", errorText);
    if (words !== this.words) return;
    this.problem.replaceChildren(...(problem ? [`${problem} `, makeButton(t("retry"), () => this.load())] : []));
    this.show();
  }

  show() {
    const empty = this.sections.every(({ items }) => !items.length) && !this.problem.textContent;
    const texts = !empty ? [] : this.words ? [t("nothingFound")] : [t("noMemory"), t("noMemoryHow")];
    this.note.replaceChildren(...texts.map((text) => make("p", "", text)));
  }

  write() {
    const close = () => {
      this.adding.replaceChildren();
      this.add.focus();
    };
    const form = makeMemoryForm(null, async ({ text, category, mutable }) => {
      const item = await request("POST", "v1/memory", { text, ...(category ? { category } : {}), mutable });
      await this.loaded; // a list that loads now may lack the new item
      close();
      this.changed(item);
    }, close);
    this.adding.replaceChildren(form);
    form.querySelector("textarea")?.focus();
  }

  /** @param {Item} item */
  changed(item) {
    for (const section of this.sections) section.drop(item.id);
    this.sections.find(({ category }) => category === item.category)?.put(item);
    this.show();
    document.getElementById(`item-${item.id}`)?.closest("li")?.querySelector("button")?.focus();
  }

  /** @param {Item} item */
  deleted(item) {
    for (const section of this.sections) section.drop(item.id);
    this.show();
    this.search.focus();
  }

  close() {
    this.dialog.close();
  }

  /** @param {string} problem an empty text for none */
  complain(problem) {
    this.problem.textContent = problem;
  }

  /** @param {boolean} on */
  async set(on) {
    this.wasSet = true;
    this.problem.textContent = await request("PATCH", "v1/memory", { recall: on }).then(() => "", errorText);
    if (this.problem.textContent) this.recall.show(!on);
    else notifyTabs({ recall: on });
  }
}

/** The facts of one category, or the summaries. */
class Section {
  /** @param {import("../base/types.js").Category | null} category @param {MemoryDialog} memory */
  constructor(category, memory) {
    this.category = category;
    this.memory = memory;
    /** @type {Item[]} */
    this.items = [];
    /** @type {string | null} */
    this.next = null;
    this.words = "";
    this.list = make("ul", "items");
    this.more = makeButton(t("more"), () => this.loadMore(), { className: "quiet" });
    const title = t(category ?? "summaries");
    this.node = make("section", "", make("h3", "", title), this.list, this.more);
    this.node.setAttribute("aria-label", title);
    this.node.hidden = true;
  }

  /** @param {string} words */
  async load(words) {
    const page = await this.part(words, null);
    if (words !== this.memory.words) return;
    this.words = words;
    this.items = page.items;
    this.next = page.next;
    if (!this.memory.wasSet) this.memory.recall.show(page.recall);
    this.show();
  }

  async loadMore() {
    const { words, next } = this;
    const page = await this.part(words, next).catch((error) => this.memory.complain(errorText(error)));
    if (!page || words !== this.memory.words || next !== this.next) return;
    const last = this.list.lastElementChild;
    this.items = [...this.items, ...page.items];
    this.next = page.next;
    this.list.append(...page.items.map((/** @type {Item} */ item) => makeMemoryItem(item, this.memory)));
    this.more.hidden = !this.next;
    this.memory.complain("");
    last?.nextElementSibling?.querySelector("button")?.focus();
  }

  /** @param {string} words @param {string | null} before */
  part(words, before) {
    const query = new URLSearchParams({ kind: this.category ? "fact" : "memory", limit: String(PART) });
    const rest = { category: this.category, q: words, before };
    for (const [name, value] of Object.entries(rest)) if (value) query.set(name, value);
    return request("GET", `v1/memory?${query}`);
  }

  /** @param {Item} item goes first */
  put(item) {
    this.items = [item, ...this.items];
    this.list.prepend(makeMemoryItem(item, this.memory));
    this.node.hidden = false;
  }

  /** @param {string} id */
  drop(id) {
    const at = this.items.findIndex((item) => item.id === id);
    if (at < 0) return;
    this.items.splice(at, 1);
    this.list.children[at].remove();
    this.node.hidden = !this.items.length;
  }

  show() {
    this.list.replaceChildren(...this.items.map((item) => makeMemoryItem(item, this.memory)));
    this.more.hidden = !this.next;
    this.node.hidden = !this.items.length;
  }
}

/** @param {() => void} changed */
function makeSearchBox(changed) {
  const search = make("input");
  let waiting = 0;
  search.type = "search";
  search.placeholder = t("searchShort");
  search.setAttribute("aria-label", t("searchMemory"));
  search.autofocus = !hasTouchScreen;
  search.oninput = () => {
    clearTimeout(waiting);
    waiting = window.setTimeout(changed, PAUSE);
  };
  return search;
}

/** Whether anything is recalled: for this user, and in this window. @param {(on: boolean) => void} set */
function makeRecallSwitches(set) {
  const everywhere = makeSwitchRow(t("recall"), t("recallWhat"), true, (on) => {
    set(on);
    show(on);
  });
  const here = makeSwitchRow(t("recallHere"), t("recallHereWhat"), !isMemoryLeftOut(), (on) => setMemoryLeftOut(!on));
  const show = (/** @type {boolean} */ on) => {
    everywhere.box.checked = on;
    setRecall(on);
    here.box.disabled = !on;
  };
  return { node: make("div", "switches", everywhere.node, here.node), show };
}

/**
 * @param {string} label
 * @param {string} about
 * @param {boolean} on
 * @param {(on: boolean) => void} set
 */
function makeSwitchRow(label, about, on, set) {
  const text = make("span", "small", about), { box, name } = makeSwitch(label, text, on, set);
  return { node: make("div", "switch-row", name, box, text), box };
}
