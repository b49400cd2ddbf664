// The card of one specialist call: parameters, progress, approval, then result or error.

import { makeCopyButton } from "../base/clipboard.js";
import { make, makeButton, makeIcon, makeProblemLine } from "../base/dom.js";
import { makeScrollBox } from "../base/scroll_box.js";
import { explainCall, formatDuration, hasDetails, t } from "../base/texts.js";
import { makeAssistButton } from "../dialogs/assistance.js";
import { abbreviate, makeParamsBox } from "./params.js";
import { renderMarkdown } from "./text.js";
import { startTicking } from "./ticking.js";

/**
 * @typedef {import("../base/types.js").Citation} Citation
 * @typedef {import("../base/types.js").Events} Events
 * @typedef {(approve: boolean) => Promise<string>} Decide an empty text, or the problem
 */

const UNREADABLE = "?"; // the name in a call that could not be read
const RAN = ["refused", "timeout", "failed", "interrupted"]; // calls with any other code did not start

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
   * @param {boolean} [isAssisted] whether Brain chose the call
   */
  constructor(name, params, isAssisted = false) {
    this.name = name;
    this.isAssisted = isAssisted;
    const shown = params.length && params[0] !== "null" && params.join("") !== "{}" ? params : [];
    this.#bar.setAttribute("aria-label", t("progress"));
    this.#bar.hidden = this.#note.hidden = true;
    this.#details = make("details", "", make("summary", "", this.#mark, make("strong", "", displayName(name)),
      make("code", "params", shown.length ? abbreviate(shown) : ""),
      ...(isAssisted ? [make("span", "by", t("chosenByBrain"))] : []), this.#state, makeIcon("open")), this.#inside);
    this.node = make("div", "call running", this.#details, this.#note, this.#bar);
    this.node.setAttribute("role", "group");
    this.node.setAttribute("aria-label", displayName(name));
    if (shown.length) this.#params = [makeSection(t("parameters"), makeParamsBox(shown))];
    this.#inside.append(...this.#params, ...(isAssisted ? [makeAssistButton()] : []));
  }

  get running() {
    return this.node.matches(".running, .waiting");
  }

  start() {
    this.#closeQuestion();
    const start = performance.now();
    this.#setState("running", t("running"));
    this.#stopTicking();
    this.#stopTicking = startTicking(() => {
      const time = performance.now() - start;
      if (time >= 1000) this.#state.textContent = formatDuration(time);
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
      cached ? t("cached") : "", ms === undefined ? "" : formatDuration(ms),
    ];
    this.#end("ok", facts.filter(Boolean).join(" · "));
    this.#showNote("");
    if (this.isAssisted) this.#details.open = true;
    this.#inside.prepend(this.#resultSection(text, citations));
    const sources = make("ol", "citations", ...citations.map(makeCitation));
    if (citations.length) this.#inside.prepend(makeSection(t("sourcesTitle"), sources));
  }

  /** Closes the card. */
  fold() {
    this.#details.open = false;
  }

  /** The result, which is rendered when the card is opened. @param {string} text @param {Citation[]} citations */
  #resultSection(text, citations) {
    const node = make("div", "", make("div", "text plain", text));
    const render = () => node.replaceChildren(renderMarkdown(text, citations));
    if (this.#details.open) render();
    else this.#details.addEventListener("toggle", render, { once: true });
    return makeSection(t("result"), makeScrollBox(t("result"), node), makeCopyButton(t("copyResult"), text));
  }

  /** @param {Events["specialist_error"]} error */
  error({ code, reason, ms, approval }) {
    const isQuiet = code === "declined" || code === "cancelled", details = t("details");
    if (isQuiet) this.#end("abandoned", t(approval === "expired" ? approval : code));
    else this.#end("failed", ms ? formatDuration(ms) : "");
    this.#showNote(isQuiet ? "" : describeFailure({ name: this.name, code, reason }));
    const line = make("p", "reason", reason);
    if (isQuiet || hasDetails(code)) this.#inside.prepend(makeSection(details, makeScrollBox(details, line)));
    return this;
  }

  /**
   * @param {Events["approval_required"]} event
   * @param {Decide} decide
   */
  ask({ expires_at, text }, decide) {
    const timeLeft = make("p", "small time-left"), problem = makeProblemLine();
    const choices = [
      makeButton(t("approve"), () => answer(true), { className: "primary" }),
      makeButton(t("decline"), () => answer(false)),
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

  /** The turn waits for a decision about the call, on the card of its task. */
  suspend() {
    if (this.running) this.#end("suspended", t("needsApproval"));
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
      const text = t("timeLeft", { time: formatMinutes(Math.max(0, until.getTime() - Date.now())) });
      if (line.textContent !== text) line.textContent = text;
    };
    this.#stopTicking();
    this.#stopTicking = startTicking(tick);
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
    this.#mark.replaceChildren(...(outcome in MARKS ? [makeIcon(MARKS[outcome])] : []));
  }

  /** @param {string} text */
  #showNote(text) {
    this.#note.textContent = text;
    this.#note.hidden = !text;
  }
}

/** @type {Record<string, string>} */
const MARKS = { ok: "check", failed: "warning", abandoned: "close", waiting: "question", suspended: "question" };

/**
 * @param {string} title
 * @param {HTMLElement} content
 * @param {...HTMLElement} beside buttons beside the title
 */
function makeSection(title, content, ...beside) {
  return make("div", "section", make("div", "section-head", make("p", "small", title), ...beside), content);
}

/** Minutes and seconds, such as 9:05. @param {number} ms */
function formatMinutes(ms) {
  const seconds = Math.ceil(ms / 1000);
  return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
}

/** Isolates title and host, so that neither can reverse the other. @param {Citation} citation */
function makeCitation({ id, title, url }) {
  const label = make("bdi", "", title || url || id), address = url && URL.canParse(url) ? new URL(url) : null;
  if (!address || !["http:", "https:"].includes(address.protocol)) return make("li", "", label);
  const link = make("a", "", label);
  link.href = address.href;
  link.target = "_blank";
  link.rel = "noopener noreferrer";
  return make("li", "", link, " ", make("bdi", "small", address.host));
}

/** The name of a call for a person. @param {string} name */
export function displayName(name) {
  return name === UNREADABLE ? t("someCall") : name;
}

/** @param {{ name: string, code: string, reason: string }} call */
export function describeFailure({ name, code, reason }) {
  const key = RAN.includes(code) ? "didFail" : "notRun";
  return t(key, { name: displayName(name), reason: explainCall(code, reason) });
}
