// One round of a strategy: a line that is open while the round runs, with its instruction, reasoning and calls.

import { announce } from "../base/announcements.js";
import { make, makeIcon } from "../base/dom.js";
import { formatDuration, formatNames, nameRole, t } from "../base/texts.js";
import { displayName } from "./card.js";
import { startTicking } from "./ticking.js";

const LONG = 1000; // ms until the time shows and the round is announced

/** A round, live or stored. */
export class Round {
  #time = make("span", "state");
  #names = make("span", "round-calls");
  #failure = make("span", "round-failure");
  /** @type {Set<string>} */
  #calls = new Set();
  #isOwn = false; // whether a person opened or closed it
  #stopTicking = () => {};
  #inside;
  #announcement;

  /** @param {import("../base/types.js").Events["round"]} round */
  constructor({ n, of, role, model, text = "" }) {
    this.n = n;
    this.model = model;
    const number = make("span", "number", String(n)), label = make("span", "visually-hidden", t("roundOf", { n, of }));
    number.setAttribute("aria-hidden", "true");
    number.title = label.textContent;
    const name = make("bdi", "round-model", model), about = make("bdi", "round-about", firstLine(text));
    name.title = model;
    const summary = make("summary", "", number, label, make("strong", "", nameRole(role)), name, about, this.#failure,
      this.#names, this.#time, makeIcon("open"));
    this.#inside = make("div", "inside", ...(text.trim() ? [make("p", "round-text", text.trim())] : []));
    this.node = make("details", "round", summary, this.#inside);
    summary.addEventListener("click", () => { this.#isOwn = true; });
    this.#announcement = t("roundRuns", { n, role: nameRole(role), model });
  }

  get running() {
    return this.node.matches(".running");
  }

  /** Opens it and measures its time. */
  start() {
    const start = performance.now();
    let isAnnounced = false;
    this.node.open = true;
    this.node.classList.add("running");
    this.#stopTicking = startTicking(() => {
      const time = performance.now() - start;
      if (time < LONG) return;
      if (!isAnnounced) announce(this.#announcement);
      isAnnounced = true;
      this.#time.textContent = formatDuration(time);
    });
  }

  /** Adds reasoning or a card. @param {HTMLElement} node */
  put(node) {
    this.#inside.append(node);
  }

  /** Adds the name of a call to the line. @param {string} name */
  addCall(name) {
    this.#calls.add(displayName(name));
    this.#names.textContent = formatNames([...this.#calls]);
  }

  /** A call in it failed: its line shows that, also while it is closed. */
  markFailed() {
    if (this.#failure.childNodes.length) return;
    this.#failure.append(makeIcon("warning"), make("span", "visually-hidden", t("callFailed")));
    this.#failure.title = t("callFailed");
  }

  /** The round ended. @param {number} [ms] its duration, if the server reported it */
  end(ms) {
    this.#stopTicking();
    this.#stopTicking = () => {};
    this.node.classList.remove("running");
    if (ms !== undefined) this.#time.textContent = formatDuration(ms);
  }

  /** Closes it, unless a person opened it or has to approve a call in it. */
  fold() {
    if (!this.node.open || this.#isOwn || this.node.querySelector(".call.waiting")) return;
    if (this.#inside.contains(document.activeElement)) this.node.querySelector("summary")?.focus();
    this.node.open = false;
  }

  /** Opens it for a call that needs approval. */
  unfold() {
    this.node.open = true;
    this.#isOwn = false;
  }
}

/** @param {string} text */
function firstLine(text) {
  return text.trim().split("\n", 1)[0].slice(0, 200);
}
