// The card of one specialist call: parameters, progress, approval, then result or error.

import { box } from "../base/box.js";
import { copyButton } from "../base/clipboard.js";
import { button, icon, make, problemLine } from "../base/dom.js";
import { includesReason, span, t } from "../base/texts.js";
import { displayName, failure } from "./failures.js";
import { inShort, paramsBox } from "./params.js";
import { renderMarkdown } from "./text.js";

/**
 * @typedef {import("../base/types.js").Citation} Citation
 * @typedef {import("../base/types.js").Events} Events
 * @typedef {(approve: boolean) => Promise<string>} Decide an empty text, or the problem
 */

const TICK = 100; // ms
/** @type {Set<() => void>} */
const ticking = new Set();
let clock = 0;

/** Calls a function regularly; returns how to stop it. @param {() => void} tick */
function everyTick(tick) {
  ticking.add(tick);
  clock ||= setInterval(() => ticking.forEach((each) => each()), TICK);
  return () => {
    ticking.delete(tick);
    if (ticking.size) return;
    clearInterval(clock);
    clock = 0;
  };
}

/** The card of one call. */
export class Card {
  #state = make("span", "state");
  #note = make("p", "note");
  #bar = make("progress");
  #inside = make("div", "inside");
  #details;
  #mark = make("span", "mark");
  /** @type {HTMLElement[]} */
  #params = []; // exact parameters; while an approval is open, they are in it
  #stopTicking = () => {};
  /** @type {HTMLElement | null} */
  #question = null;

  /**
   * @param {string} name
   * @param {string[]} params their JSON tokens
   */
  constructor(name, params) {
    this.name = name;
    const shown = params.length && params[0] !== "null" && params.join("") !== "{}" ? params : [];
    this.#bar.setAttribute("aria-label", t("progress"));
    this.#bar.hidden = this.#note.hidden = true;
    this.#details = make("details", "", make("summary", "", this.#mark, make("strong", "", displayName(name)),
      make("code", "params", shown.length ? inShort(shown) : ""), this.#state, icon("open")), this.#inside);
    this.node = make("div", "call running", this.#details, this.#note, this.#bar);
    this.node.setAttribute("role", "group");
    this.node.setAttribute("aria-label", displayName(name));
    if (shown.length) this.#params = [section(t("parameters"), paramsBox(shown))];
    this.#inside.append(...this.#params);
  }

  get running() {
    return this.node.matches(".running, .waiting");
  }

  start() {
    this.#closeQuestion();
    const start = performance.now();
    this.#setState("running", t("running"));
    this.#stopTicking();
    this.#stopTicking = everyTick(() => {
      const time = performance.now() - start;
      if (time >= 1000) this.#state.textContent = span(time);
    });
  }

  /** @param {Events["specialist_progress"]} progress */
  progress({ text, fraction }) {
    this.#showNote(text ?? "");
    this.#bar.hidden = typeof fraction !== "number";
    if (typeof fraction === "number") this.#bar.value = Math.min(Math.max(fraction, 0), 1);
  }

  /** @param {import("../base/types.js").Result} result */
  result({ text, citations = [], cached, ms, approval }) {
    const facts = [
      approval === "approved" ? t("approved") : "", citations.length ? t("sources", { count: citations.length }) : "",
      cached ? t("cached") : "", ms === undefined ? "" : span(ms),
    ];
    this.#end("ok", facts.filter(Boolean).join(" · "));
    this.#showNote("");
    this.#inside.prepend(this.#resultSection(text, citations));
    const sources = make("ol", "citations", ...citations.map(citationItem));
    if (citations.length) this.#inside.prepend(section(t("sourcesTitle"), sources));
  }

  /** The result, which is rendered when the card is opened. @param {string} text @param {Citation[]} citations */
  #resultSection(text, citations) {
    const node = make("div", "", make("div", "text plain", text));
    const render = () => node.replaceChildren(renderMarkdown(text, citations));
    if (this.#details.open) render();
    else this.#details.addEventListener("toggle", render, { once: true });
    return section(t("result"), box(t("result"), node), copyButton(t("copyResult"), text));
  }

  /** @param {Events["specialist_error"]} error */
  error({ code, reason, ms, approval }) {
    const quiet = code === "declined" || code === "cancelled";
    this.#end(quiet ? "abandoned" : "failed", quiet ? t(approval === "expired" ? approval : code) : ms ? span(ms) : "");
    this.#showNote(quiet ? "" : failure({ name: this.name, code, reason }));
    const line = make("p", "reason", reason);
    if (quiet || !includesReason(code)) this.#inside.prepend(section(t("details"), box(t("details"), line)));
  }

  /**
   * @param {Events["approval_required"]} event
   * @param {Decide} decide
   */
  ask({ expires_at, text }, decide) {
    const timeLeft = make("p", "small time-left"), problem = problemLine();
    const choices = [
      button(t("approve"), () => answer(true), { className: "primary" }), button(t("decline"), () => answer(false)),
    ];
    let isDecided = false;
    /** The buttons are not disabled, since they would lose the focus. @param {boolean} approve */
    const answer = async (approve) => {
      if (isDecided) return;
      isDecided = true;
      problem.textContent = await decide(approve);
      isDecided = !problem.textContent;
    };
    this.#question = make("div", "ask", ...(text ? [make("p", "what", text)] : []), ...this.#params,
      make("div", "choices", ...choices, timeLeft), problem);
    this.#details.after(this.#question);
    this.#setState("waiting", t("needsApproval"));
    this.#countDown(timeLeft, new Date(expires_at));
  }

  /** The turn ended before the call. */
  leave() {
    if (this.running) this.#end("abandoned", t("notFinished"));
  }

  /**
   * @param {HTMLElement} line
   * @param {Date} until
   */
  #countDown(line, until) {
    const tick = () => {
      const text = t("timeLeft", { time: minutes(Math.max(0, until.getTime() - Date.now())) });
      if (line.textContent !== text) line.textContent = text;
    };
    this.#stopTicking();
    this.#stopTicking = everyTick(tick);
    tick();
  }

  #closeQuestion() {
    if (this.#question?.contains(document.activeElement)) this.#details.querySelector("summary")?.focus();
    this.#inside.prepend(...this.#params);
    this.#question?.remove();
    this.#question = null;
  }

  /**
   * @param {string} outcome
   * @param {string} text
   */
  #end(outcome, text) {
    this.#stopTicking();
    this.#stopTicking = () => {};
    this.#closeQuestion();
    this.#bar.hidden = true;
    this.#setState(outcome, text);
  }

  /**
   * @param {string} outcome
   * @param {string} text
   */
  #setState(outcome, text) {
    this.node.className = `call ${outcome}`;
    this.#state.textContent = text;
    this.#mark.replaceChildren(...(outcome in MARKS ? [icon(MARKS[outcome])] : []));
  }

  /** @param {string} text */
  #showNote(text) {
    this.#note.textContent = text;
    this.#note.hidden = !text;
  }
}

/** @type {Record<string, string>} */
const MARKS = { ok: "check", failed: "warning", abandoned: "close", waiting: "question" };

/**
 * @param {string} title
 * @param {HTMLElement} content
 * @param {...HTMLElement} beside buttons beside the title
 */
function section(title, content, ...beside) {
  return make("div", "section", make("div", "section-head", make("p", "small", title), ...beside), content);
}

/** Minutes and seconds, such as 9:05. @param {number} ms */
function minutes(ms) {
  const seconds = Math.ceil(ms / 1000);
  return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
}

/** Isolates title and host, so that neither can reverse the other. @param {Citation} citation */
function citationItem({ id, title, url }) {
  const label = make("bdi", "", title || url || id), address = url && URL.canParse(url) ? new URL(url) : null;
  if (!address || !["http:", "https:"].includes(address.protocol)) return make("li", "", label);
  const link = make("a", "", label);
  link.href = address.href;
  link.target = "_blank";
  link.rel = "noopener noreferrer";
  return make("li", "", link, " ", make("bdi", "small", address.host));
}
