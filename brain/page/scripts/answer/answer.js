// Answer: text, calls and notices in the order in which they came, and how it ended.

import { modelNamed } from "../dialogs/choices.js";
import { say, urge } from "../ground/announcing.js";
import { copyButton, withSources } from "../ground/copying.js";
import { button, make } from "../ground/dom.js";
import { eventsOf } from "../ground/stored.js";
import { span, t } from "../ground/texts.js";
import { Card } from "./card.js";
import { failure } from "./failures.js";
import { paramsIn } from "./params.js";
import { follow, isAtEnd, reveal } from "./reading.js";
import { Unread, readLater, steered } from "./steered.js";
import { AnswerText, whole } from "./text.js";
import { Waiting } from "./waiting.js";

const READ_OUT = 400; // characters: a longer answer is told by its length
/** @type {Record<string, Parameters<typeof t>[0]>} */
const ENDINGS = {
  length: "endedLength", repetition: "endedRepetition", call_limit: "endedCalls", deadline: "endedTime",
  cancelled: "stopped",
};

const SAID_ELSEWHERE = ["stand_in", "repeated_call", "repetition"]; // at the end of each answer, on the card

/**
 * @typedef {import("../ground/types.js").Events} Events
 * @typedef {object} Hands what a person can do with it
 * @property {() => void} retry
 * @property {() => void} fresh
 * @property {(call: string, approve: boolean) => Promise<string>} decide
 */

/** One answer, as it is written or as it was kept. */
export class Answer {
  /** @type {string | null} */
  id = null;
  over = false;
  problem = ""; // how it failed, if so
  /** @type {string[]} */
  #said = [];
  /** @type {Map<string, Card>} */
  #cards = new Map();
  /** @type {AnswerText | null} */
  #open = null; // the text that is being written
  /** @type {Text | null} */
  #thought = null;
  #flow = make("div", "flow");
  #meta = make("span", "small meta");
  #foot = make("div", "actions", this.#meta);
  #unread = new Unread();
  #waiting = new Waiting(() => [...this.#cards.values()].some((card) => card.running));
  #frame = 0;
  #model = "";
  #tokens = "";
  /** @type {import("../ground/types.js").Citation[]} */
  #sources = [];
  #say = say;
  #hands;

  /** @param {Hands} hands */
  constructor(hands) {
    this.#hands = hands;
    this.node = make("article", "answer", this.#flow, this.#unread.node, this.#foot);
    this.node.setAttribute("aria-label", t("brain"));
  }

  get text() {
    return this.#said.join("").trim();
  }

  /** It is asked for; nothing has come yet. */
  wait() {
    this.#foot.prepend(this.#waiting.node);
    this.#waiting.again();
    return this;
  }

  /** The names of the events that it shows. */
  get hears() {
    return /** @type {(keyof Events)[]} */ (Object.keys(this.#shown));
  }

  /**
   * One that it does not know it passes over.
   * @template {keyof Events} N
   * @param {import("../ground/types.js").EventOf<N>} event
   */
  show(event) {
    this.#waiting.again();
    this.#shown[event.name]?.(event.data, event.raw);
  }

  /** @type {{ [N in keyof Events]: (data: Events[N], raw: string) => void }} */
  #shown = {
    turn_start: ({ model }) => { this.#model = model; },
    token: ({ text, whole }) => whole ? this.#writeWhole(text) : this.#write(text),
    thinking: ({ text }) => this.#think(text),
    approval_required: (data, raw) => this.#ask(data, raw),
    specialist_start: (data, raw) => {
      this.#card(data.call_id, data.name, raw).start();
      this.#say(t("begins", { name: data.name }));
    },
    specialist_progress: (data) => this.#cards.get(data.call_id)?.progress(data),
    specialist_result: (data, raw) => {
      this.#card(data.call_id, data.name, raw).result(data);
      this.#sources.push(...(data.citations ?? []));
      this.#say(t("ends", { name: data.name }));
    },
    specialist_error: (data, raw) => {
      this.#card(data.call_id, data.name, raw).error(data);
      this.#say(failure(data));
    },
    notice: (data) => this.#notice(data),
    usage: ({ completion_tokens, estimated }) => {
      const amount = t("tokens", { count: completion_tokens });
      this.#tokens = estimated ? t("about", { amount }) : amount;
    },
    error: ({ code, message, recoverable }) => {
      this.fail(code === "shutdown" ? t("interrupted") : message, recoverable, code === "model_context");
    },
    done: (data) => this.#done(data),
  };

  /** @param {string} text */
  #write(text) {
    if (!this.#open) {
      text = text.trimStart();
      if (!text) return;
      this.#endText();
      if (!this.#said.length) this.#say(t("writes"));
      else this.#said.push("\n\n");
      this.#open = new AnswerText(this.#sources);
      this.#flow.append(this.#open.node);
    }
    this.#said.push(text);
    this.#open.append(text);
  }

  /** @param {string} text */
  #writeWhole(text) {
    if (!text.trim()) return;
    if (this.#said.length) this.#said.push("\n\n");
    this.#said.push(text.trimStart());
    this.#put(whole(text, this.#sources));
  }

  /** @param {string} text */
  #think(text) {
    if (!this.#thought) {
      const thought = document.createTextNode("");
      this.#put(make("details", "thinking", make("summary", "", t("thinking")), make("div", "thoughts", thought)));
      this.#thought = thought;
    }
    this.#thought.appendData(text);
    this.#soonFollow();
  }

  #soonFollow() {
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0;
      follow();
    });
  }

  #endText() {
    this.#open?.end();
    this.#open = null;
    const summary = this.#thought?.parentElement?.previousElementSibling;
    if (summary) summary.textContent = t("thought");
    this.#thought = null;
  }

  /** @param {HTMLElement} node */
  #put(node) {
    this.#endText();
    this.#flow.append(node);
    follow();
  }

  /**
   * @param {string} id
   * @param {string} name
   * @param {string} raw
   */
  #card(id, name, raw) {
    const known = this.#cards.get(id);
    if (known) return known;
    const card = new Card(name, paramsIn(raw)), next = this.#behind(id);
    this.#cards.set(id, card);
    if (next) next.node.before(card.node);
    else this.#put(card.node);
    return card;
  }

  /** Of calls that run side by side, the first that was asked for later and is there before it. @param {string} id */
  #behind(id) {
    const later = [...this.#cards.keys()].filter((other) => numberOf(other) > numberOf(id));
    const [next] = later.sort((one, other) => numberOf(one) - numberOf(other));
    return this.#cards.get(next);
  }

  /**
   * @param {Events["approval_required"]} data
   * @param {string} raw
   */
  #ask(data, raw) {
    this.#card(data.call_id, data.name, raw).ask(data, (approve) => this.#hands.decide(data.call_id, approve));
    urge(t("asksApproval", data));
    reveal();
  }

  /** @param {{ code: string, text: string }} notice */
  #notice({ code, text }) {
    if (SAID_ELSEWHERE.includes(code)) return;
    if (code === "prompt_progress") return this.#waiting.tell(text);
    if (code === "steered") this.#unread.taken(text);
    if (code === "steered") this.#put(steered(text));
    else if (code === "recalled") this.#put(make("details", "notice small recalled", make("summary", "", text)));
    else this.#put(make("p", "notice small", text));
  }

  /**
   * Shows what a person puts in, until it is taken.
   * @param {string} text
   * @returns {() => void} takes it back
   */
  putIn(text) {
    const takeBack = this.#unread.add(text);
    if (!isAtEnd()) reveal();
    return takeBack;
  }

  /** What was put in and never taken; it is shown no longer. */
  takeBack() {
    return this.#unread.takeBack();
  }

  /** @param {Events["done"]} data */
  #done({ stop_reason, message_id, text, total_ms }) {
    this.id = message_id;
    let last = this.#flow.lastElementChild;
    for (; last?.matches(".steered"); last = last.previousElementSibling) readLater(last);
    if (stop_reason in ENDINGS) this.#put(make("p", "notice small", t(ENDINGS[stop_reason])));
    this.#end([total_ms === undefined ? "" : span(total_ms), this.#tokens]);
    this.#say(stop_reason === "cancelled" ? t("stopped") : spoken(text));
  }

  /** @param {string[]} facts */
  #end(facts) {
    this.#close();
    const model = modelNamed(this.#model)?.stand_in ? t("standInModel", { name: this.#model }) : this.#model;
    this.#meta.textContent = [model, ...facts].filter(Boolean).join(" · ");
    if (this.text) this.#foot.append(copyButton(t("copy"), withSources(this.text, this.#sources)));
    if (!this.problem) {
      this.#foot.append(button(t("retry"), this.#hands.retry, { icon: "retry", className: "quiet square retry" }));
    }
    follow();
  }

  #close() {
    this.over = true;
    this.#endText();
    this.leave();
    this.#waiting.end();
  }

  /** It is looked at no longer, and goes on elsewhere. */
  leave() {
    for (const card of this.#cards.values()) card.leave();
    this.#waiting.leave();
  }

  /**
   * It ended, and not well.
   * @param {string} text
   * @param {boolean} again whether asking again may help
   * @param {boolean} [elsewhere] whether a new conversation may
   */
  fail(text, again, elsewhere = false) {
    this.problem = text;
    const line = make("div", "error", make("p", "", text));
    line.setAttribute("role", "alert");
    if (again) line.append(button(t("retry"), this.#hands.retry, { icon: "retry", text: true }));
    if (elsewhere) line.append(button(t("fresh"), this.#hands.fresh));
    this.#put(line);
    if (!this.over) this.#end([]);
  }

  /**
   * Shows an answer as it was kept, silently.
   * @param {import("../ground/types.js").KeptAnswer} message
   */
  restore(message) {
    this.id = message.id;
    this.#say = () => {};
    for (const event of eventsOf(message)) this.show(event);
    if (this.over) return this;
    this.#put(make("p", "notice small", t("elsewhere"))); // it will be here when it is whole
    return this.wait();
  }
}

/** Calls are numbered in the order in which the model asks. @param {string} call */
function numberOf(call) {
  return Number(call.slice(1));
}

/** How the end is told: in full, or by its length. @param {string} text */
function spoken(text) {
  if (text.length <= READ_OUT) return t("answered", { text: text.replace(/\*\*|`|^#+ /gm, "").trim() });
  return t("answeredLong", { count: text.trim().split(/\s+/).length });
}
