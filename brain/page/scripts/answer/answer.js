// One answer: text, calls and notices in order, and how it ended.

import { announce, announceNow } from "../base/announcements.js";
import { addSources, makeCopyButton } from "../base/clipboard.js";
import { make, makeButton } from "../base/dom.js";
import { makeMenuButton } from "../base/menu.js";
import { eventsOf } from "../base/stored_conversation.js";
import {
  countWords, explainEnding, explainError, explainNotice, formatDuration, formatNames, t,
} from "../base/texts.js";
import { modelNamed } from "../dialogs/choices.js";
import { showExplanation } from "../dialogs/explain.js";
import { PendingAdditions, makeAddition, markForNextMessage } from "./additions.js";
import { Card, describeFailure } from "./card.js";
import { paramsIn } from "./params.js";
import { Round } from "./round.js";
import { follow, isAtEnd, keepTop, log, reveal } from "./scrolling.js";
import { taskCard } from "./task_card.js";
import { AnswerText, renderMarkdown } from "./text.js";
import { Waiting } from "./waiting.js";

const READ_OUT = 400; // characters; for a longer answer, only the length is announced
const TASK = /\btask[0-9a-f]{16}\b/; // the id in the result of a call that created a task
const SHOWN_ELSEWHERE = ["stand_in", "repeated_call", "repetition"]; // at the end of the answer or on the card

/**
 * @typedef {import("../base/types.js").Events} Events
 * @typedef {import("../base/types.js").TurnEvent} TurnEvent
 * @typedef {object} Actions what a person can do with it
 * @property {() => void} retry
 * @property {() => void} startNew
 * @property {(call: string, approve: boolean) => Promise<string>} decide
 */

/** One answer, live or stored. */
export class Answer {
  /** @type {string | null} */
  id = null;
  over = false;
  problem = ""; // why it failed
  wasRewound = false;
  lacksParts = false; // whether events are lost that it would show
  /** @type {TurnEvent[]} */
  #events = []; // what it shows, while it is live
  /** @type {string[]} */
  #texts = [];
  /** @type {Map<string, Card>} */
  #cards = new Map();
  /** @type {AnswerText | null} */
  #open = null; // the text that may still grow
  #openFrom = 0; // its place in `#texts`
  /** @type {Text | null} */
  #thinking = null;
  /** @type {Round[]} */
  #rounds = [];
  /** @type {Map<number, number>} */
  #times = new Map(); // ms of rounds, as the server reported them
  #isLive = true;
  #flow = make("div", "flow");
  #meta = make("span", "small meta");
  #foot = make("div", "actions", this.#meta);
  #additions = new PendingAdditions();
  #waiting = new Waiting(() => this.#isBusy());
  #frame = 0;
  #turn = ""; // its id; empty for a stored answer
  #model = "";
  #tokens = "";
  /** @type {import("../base/types.js").Citation[]} */
  #sources = [];
  /** @type {{ card: Card, from: number } | null} */
  #assisted = null; // the newest call that Brain chose, and the texts before it
  #isQuiet = false; // shows what was announced before
  #actions;

  /** @param {Actions} actions */
  constructor(actions) {
    this.#actions = actions;
    this.node = make("article", "answer", this.#flow, this.#additions.node, this.#foot);
    this.node.setAttribute("aria-label", t("brain"));
  }

  get text() {
    return this.#texts.join("").trim();
  }

  /** Shows that the page waits for the answer. */
  wait() {
    this.#foot.prepend(this.#waiting.node);
    this.#waiting.restart();
    return this;
  }

  /** The names of the events that the answer shows. */
  get eventNames() {
    return /** @type {(keyof Events)[]} */ (Object.keys(this.#handlers));
  }

  /**
   * Shows an event. Ignores unknown events.
   * @template {keyof Events} N
   * @param {import("../base/types.js").EventOf<N>} event
   */
  show(event) {
    this.#waiting.restart();
    if (event.number && event.name !== "rewind") this.#events.push(/** @type {TurnEvent} */ (event));
    this.#handlers[event.name]?.(event.data, event.raw, event.number);
  }

  /** @param {string} text */
  #announce(text) {
    if (!this.#isQuiet) announce(text);
  }

  /** @type {{ [N in keyof Events]: (data: Events[N], raw: string, number?: number) => void }} */
  #handlers = {
    turn_start: ({ turn_id: turn = "", model }) => {
      this.#turn = turn;
      this.#model = model;
    },
    token: ({ text, isComplete }) => isComplete ? this.#writeComplete(text) : this.#write(text),
    thinking: ({ text }) => this.#think(text),
    round: (data) => this.#startRound(data),
    approval_required: (data, raw) => this.#ask(data, raw),
    specialist_start: (data, raw) => {
      this.#card(data, raw).start();
      if (!this.#rounds.length) this.#announce(t("begins", { name: data.name }));
    },
    specialist_progress: (data) => this.#cards.get(data.call_id)?.progress(data),
    specialist_result: (data, raw) => {
      this.#card(data, raw).result(data);
      if (data.name === "tasks" && /"operation":\s*"create"/.test(raw)) this.#putTask(data.text.match(TASK)?.[0]);
      this.#sources.push(...(data.citations ?? []));
      if (!this.#rounds.length) this.#announce(t("ends", { name: data.name }));
    },
    specialist_error: (data, raw) => {
      const { node } = this.#card(data, raw).error(data);
      if (node.matches(".failed")) this.#rounds.find((round) => round.node.contains(node))?.markFailed();
      this.#announce(describeFailure(data));
    },
    task: ({ task_id: id }) => this.#putTask(id),
    rewind: (data, _, number) => this.#rewind(data, number),
    notice: (data) => this.#notice(data),
    usage: ({ completion_tokens, estimated }) => {
      const amount = t("tokens", { count: completion_tokens });
      this.#tokens = estimated ? t("about", { amount }) : amount;
    },
    error: ({ code, message, recoverable }) => {
      this.fail(explainError(code, message) || explainError("internal"), recoverable, code === "model_context");
    },
    done: (data) => this.#done(data),
  };

  /**
   * Another process continues the turn from an earlier event: shows the events up to it again, then the rest of the text.
   * @param {Events["rewind"]} rewind
   * @param {number} [number]
   */
  #rewind({ to, text }, number) {
    const events = this.#events, kept = events.filter(({ number = 0 }) => number <= to), shown = textOf(kept);
    const isAhead = text.startsWith(shown);
    /** @type {TurnEvent} */
    const rest = { name: "token", data: { text: isAhead ? text.slice(shown.length) : text }, raw: "", number };
    this.wasRewound = true;
    this.lacksParts ||= (events.at(-1)?.number ?? 0) < to;
    if (isAhead && kept.length === events.length) return this.show(rest);
    keepTop(() => {
      this.#clear();
      for (const one of isAhead ? kept : kept.filter(({ name }) => name !== "token")) this.show(one);
      this.show(rest);
    });
    this.#isQuiet = false;
    for (const { name, data } of events.slice(kept.length)) {
      if (name === "notice" && data.code === "steered") this.#additions.add(data.text); // Brain may read it again
    }
    this.#announce(t("rewound"));
  }

  /** Removes what the events have shown, to show some of them again. */
  #clear() {
    this.#isQuiet = true;
    this.leave();
    if (this.#flow.contains(document.activeElement)) log.focus({ preventScroll: true });
    this.#flow.replaceChildren();
    this.#open = this.#thinking = this.#assisted = null;
    this.#cards = new Map();
    this.#events = [];
    this.#texts = [];
    this.#rounds = [];
    this.#sources = [];
  }

  /** @param {string} text */
  #write(text) {
    if (!this.#open) {
      text = text.trimStart();
      if (!text) return;
      this.#endText();
      this.#openFrom = this.#texts.length;
      if (!this.#texts.length) this.#announce(t("writes"));
      else this.#texts.push("\n\n");
      this.#open = new AnswerText(this.#sources);
      this.#flow.append(this.#open.node);
      this.#round?.fold(); // the answer would move up if it closed later
    }
    this.#endThinking();
    this.#texts.push(text);
    this.#foldRepeated();
    this.#open.append(text);
  }

  /** Moves the open text to the reasoning, which it turned out to be. */
  #takeBackText() {
    if (!this.#open) return;
    const text = this.#texts.splice(this.#openFrom).join("").trimStart();
    this.#open.node.remove();
    this.#open = null;
    this.#think(text);
    this.#endThinking();
  }

  /** @param {string} text */
  #writeComplete(text) {
    if (!text.trim()) return;
    if (this.#texts.length) this.#texts.push("\n\n");
    this.#texts.push(text.trimStart());
    this.#foldRepeated();
    this.#put(renderMarkdown(text, this.#sources));
  }

  /** Closes the card of a call that Brain chose if the text repeats its result: so begins an answer without a model. */
  #foldRepeated() {
    if (!this.#assisted) return;
    const { card, from } = this.#assisted, begin = `From ${card.name}:\n\n`;
    const text = this.#texts.slice(from).join("").trimStart();
    if (text.startsWith(begin)) card.fold();
    if (!begin.startsWith(text)) this.#assisted = null;
  }

  /** @param {string} text */
  #think(text) {
    if (!this.#thinking) {
      const thought = document.createTextNode("");
      const thoughts = make("div", "thoughts", thought);
      this.#putInRound(make("details", "thinking", make("summary", "", t("thinking")), thoughts));
      this.#thinking = thought;
    }
    this.#thinking.appendData(text);
    this.#scheduleFollow();
  }

  #scheduleFollow() {
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0;
      follow();
    });
  }

  #endText() {
    this.#open?.end();
    this.#open = null;
    this.#endThinking();
  }

  #endThinking() {
    const summary = this.#thinking?.parentElement?.previousElementSibling;
    if (summary) summary.textContent = t("thought");
    this.#thinking = null;
  }

  /** @param {HTMLElement} node */
  #put(node) {
    this.#endText();
    this.#flow.append(node);
    follow();
  }

  /** The current round. */
  get #round() {
    return this.#rounds.at(-1);
  }

  /** Starts a round above the text of the answer. @param {Events["round"]} data */
  #startRound(data) {
    const round = new Round(data), text = this.#flow.querySelector(":scope > .text");
    this.#endText();
    if (this.#round) this.#round.end(this.#times.get(this.#round.n));
    for (const previous of this.#rounds) previous.fold();
    this.#rounds.push(round);
    if (text) text.before(round.node);
    else this.#flow.append(round.node);
    if (this.#isLive) round.start();
    else round.end(data.ms);
    follow();
  }

  get hasRounds() {
    return this.#rounds.length > 0;
  }

  /** Shows how long the rounds took that have ended. @param {import("../base/types.js").Round[]} rounds */
  setTimes(rounds) {
    this.#times = new Map(rounds.flatMap(({ n, ms }) => typeof ms === "number" ? [[n, ms]] : []));
    for (const round of this.#rounds) if (this.#times.has(round.n)) round.end(this.#times.get(round.n));
  }

  /** Adds reasoning or a card to the current round; without rounds, to the answer. @param {HTMLElement} node */
  #putInRound(node) {
    if (!this.#round) return this.#put(node);
    this.#endThinking();
    this.#round.put(node);
    this.#flow.lastElementChild?.classList.add("read"); // an addition, if the round continued after it
    follow();
  }

  /** Shows the card of a task. It may be in an earlier answer already, if this one changed the task. @param {string} [id] */
  #putTask(id) {
    if (id && !log.querySelector(`.answer [data-task="${CSS.escape(id)}"]`)) this.#put(taskCard(id).node);
  }

  /** Whether a card or a round shows that the turn runs. */
  #isBusy() {
    return [...this.#cards.values()].some((card) => card.running) || (!this.#open && Boolean(this.#round?.running));
  }

  /**
   * @param {import("../base/types.js").Call} call
   * @param {string} raw
   */
  #card({ call_id: id, name, by }, raw) {
    const existing = this.#cards.get(id);
    if (existing) return existing;
    const card = new Card(name, paramsIn(raw), by === "assist"), next = this.#nextOf(id);
    this.#cards.set(id, card);
    if (card.isAssisted) this.#assisted = { card, from: this.#texts.length };
    this.#round?.addCall(name);
    if (next) next.node.before(card.node);
    else this.#putInRound(card.node);
    return card;
  }

  /** The first card of a later call: calls run in parallel, and cards keep the model's order. @param {string} id */
  #nextOf(id) {
    const later = [...this.#cards.keys()].filter((other) => numberOf(other) > numberOf(id));
    const [next] = later.sort((one, other) => numberOf(one) - numberOf(other));
    return this.#cards.get(next);
  }

  /**
   * @param {Events["approval_required"]} data
   * @param {string} raw
   */
  #ask(data, raw) {
    this.#card(data, raw).ask(data, (approve) => this.#actions.decide(data.call_id, approve));
    this.#round?.unfold();
    if (this.#isQuiet) return;
    announceNow(t("asksApproval", data));
    reveal();
  }

  /** @param {Events["notice"]} notice */
  #notice(notice) {
    const { code } = notice, text = explainNotice(notice);
    if (SHOWN_ELSEWHERE.includes(code)) return;
    if (code === "reasoning") return this.#takeBackText();
    if (code === "prompt_progress") return this.#waiting.show(text);
    if (code === "steered") this.#additions.remove(text);
    if (code === "steered") this.#put(makeAddition(text));
    else if (code === "recalled") this.#put(make("details", "notice small recalled", make("summary", "", text)));
    else this.#put(make("p", "notice small", text));
  }

  /**
   * Shows an addition until Brain reads it.
   * @param {string} text
   * @returns {() => void} removes it
   */
  showAddition(text) {
    const takeBack = this.#additions.add(text);
    if (!isAtEnd()) reveal();
    return takeBack;
  }

  /** Removes unread additions and returns their text. */
  takeBack() {
    return this.#additions.takeBack();
  }

  /** @param {Events["done"]} data */
  #done({ stop_reason, message_id, text, total_ms }) {
    this.id = message_id;
    let last = this.#flow.lastElementChild;
    for (; last?.matches(".steered:not(.read)"); last = last.previousElementSibling) markForNextMessage(last);
    const ending = explainEnding(stop_reason);
    if (ending) this.#put(make("p", "notice small", ending));
    if (stop_reason === "suspended") for (const card of this.#cards.values()) card.suspend();
    this.#end([total_ms === undefined ? "" : formatDuration(total_ms), this.#tokens]);
    this.#announce(stop_reason === "cancelled" ? ending : summarize(text));
  }

  /** @param {string[]} facts */
  #end(facts) {
    this.#close();
    const models = new Set(this.#rounds.length ? this.#rounds.map(({ model }) => model) : [this.#model]);
    const names = [...models].map((name) => modelNamed(name)?.stand_in ? t("demoModel", { name }) : name);
    this.#meta.textContent = [formatNames(names), ...facts].filter(Boolean).join(" · ");
    if (this.text) this.#foot.append(makeCopyButton(t("copy"), addSources(this.text, this.#sources)));
    if (!this.problem) {
      const look = { icon: "retry", className: "quiet square retry" };
      this.#foot.append(makeButton(t("retry"), this.#actions.retry, look));
    }
    const id = this.id ?? this.#turn;
    const explain = { label: t("explain"), icon: "question", act: () => showExplanation(id) };
    if (id) this.#foot.append(makeMenuButton(t("answerOptions"), [explain]));
    follow();
  }

  #close() {
    this.over = true;
    this.#events = [];
    this.#endText();
    this.leave();
    for (const round of this.#rounds) round.fold();
    this.#waiting.end();
  }

  /** The answer is no longer visible; the turn continues. */
  leave() {
    for (const card of this.#cards.values()) card.leave();
    this.#round?.end();
    this.#waiting.leave();
  }

  /**
   * The answer failed.
   * @param {string} text
   * @param {boolean} again whether to offer a retry
   * @param {boolean} [elsewhere] whether to offer a new conversation
   */
  fail(text, again, elsewhere = false) {
    this.problem = text;
    const line = make("div", "error", make("p", "", text));
    line.setAttribute("role", "alert");
    if (again) line.append(makeButton(t("retry"), this.#actions.retry, { icon: "retry", text: true }));
    if (elsewhere) line.append(makeButton(t("newConversation"), this.#actions.startNew));
    this.#put(line);
    if (!this.over) this.#end([]);
  }

  /**
   * Shows a stored answer without announcements.
   * @param {import("../base/types.js").StoredAnswer} message
   */
  restore(message) {
    this.id = message.id;
    this.#isLive = false;
    this.#isQuiet = true;
    for (const event of eventsOf(message)) this.show(event);
    if (this.over) return this;
    this.#put(make("p", "notice small", t("elsewhere"))); // the conversation opens again when it is complete
    return this.wait();
  }
}

/** The visible text of events. The notice `reasoning` takes back the text of its pass. @param {TurnEvent[]} events */
function textOf(events) {
  let text = "", start = 0;
  for (const { name, data } of events) {
    if (name === "token") text += data.text;
    else if (name === "notice" && data.code === "reasoning") text = text.slice(0, start);
    else if (name !== "thinking") start = text.length;
  }
  return text;
}

/** Call ids end in a number, in the model's order. @param {string} call */
function numberOf(call) {
  return Number(call.slice(1));
}

/** Announces a short answer in full, a long one by its length. @param {string} text */
function summarize(text) {
  if (text.length <= READ_OUT) return t("answered", { text: text.replace(/\*\*|`|^#+ /gm, "").trim() });
  return t("answeredLong", { count: countWords(text) });
}
