// Conversation: the questions and answers of the open conversation, in the log.

import { Answer } from "../answer/answer.js";
import { isAtEnd, keepingPlace, log, toEnd, toStart } from "../answer/reading.js";
import { button, make } from "../ground/dom.js";
import { whenSeen } from "../ground/sight.js";
import { onceReached } from "../ground/server.js";
import { filesOf, pairs, stored, textOf } from "../ground/stored.js";
import { t } from "../ground/texts.js";
import { Question } from "./question.js";

/**
 * @typedef {import("../ground/types.js").Attached} Attached
 * @typedef {import("../ground/types.js").Kept} Kept
 * @typedef {{ question: Question, answer: Answer }} Exchange
 * @typedef {import("../answer/answer.js").Hands & { edit: (exchange: Exchange) => void }} Hands
 */

const EARLIER = 50; // of them at once
const PATIENCE = 20_000; // ms for that

/** Those of one conversation, oldest first. */
export class Exchanges {
  /** @type {Exchange[]} */
  #all = [];
  #hands;

  /** @param {Hands} hands */
  constructor(hands) {
    this.#hands = hands;
  }

  get last() {
    return this.#all.at(-1);
  }

  get lastIndex() {
    return this.#all.length - 1;
  }

  /**
   * The index of a question or an answer, or -1.
   * @param {string | null} id
   */
  indexOf(id) {
    return id ? this.#all.findIndex(({ question, answer }) => question.id === id || answer.id === id) : -1;
  }

  /**
   * A new question, which is to be answered.
   * @param {string} text
   * @param {Attached[]} files
   */
  ask(text, files) {
    const exchange = this.#made({ text, files }, this.#answer().wait());
    this.#all.push(exchange);
    clear(".complaint, .empty, .opening");
    log.append(...nodesOf([exchange]));
    toStart(exchange.question.node, exchange.answer.node);
    return exchange;
  }

  /**
   * Takes off those from an index on.
   * @param {number} index -1 for none
   */
  cut(index) {
    const gone = index < 0 ? [] : this.#all.splice(index);
    for (const node of nodesOf(gone)) take(node);
    return gone;
  }

  /** @param {Exchange[]} gone what was taken off, as it was */
  putBack(gone) {
    this.#all.push(...gone);
    log.append(...nodesOf(gone));
  }

  /**
   * Shows a conversation instead of what is there.
   * @param {Kept} found as the server keeps it
   * @param {boolean} joins whether the answer that is being written can be followed
   */
  show(found, joins) {
    this.#all = pairs(found).map((pair) => this.#restored(found, pair, joins));
    log.replaceChildren(...this.#earlier(found), ...nodesOf(this.#all));
    toEnd();
  }

  /**
   * Adds the last exchange of a conversation. What there is to complain of stays below it.
   * @param {Kept} found
   * @param {boolean} joins
   */
  append(found, joins) {
    const added = pairs(found).slice(-1).map((pair) => this.#restored(found, pair, joins)), along = isAtEnd();
    this.#all.push(...added);
    clear(".empty, .opening");
    const complaint = log.querySelector(".complaint");
    if (complaint) complaint.before(...nodesOf(added));
    else log.append(...nodesOf(added));
    for (const { question, answer } of along ? added : []) toStart(question.node, answer.node);
  }

  /** What brings those before, if there are any. @param {Kept} found */
  #earlier({ id, earlier }) {
    if (!earlier) return [];
    const load = async () => {
      if (more.disabled) return;
      more.disabled = true;
      const patience = AbortSignal.timeout(PATIENCE);
      const found = await stored(id, `limit=${EARLIER}&before=${earlier}`, patience).catch(() => null);
      more.disabled = false;
      if (found && more.isConnected) this.#prepend(found, more);
    };
    const more = button(t("earlier"), load, { className: "earlier" });
    whenSeen(more, load);
    return [more];
  }

  /**
   * @param {Kept} found
   * @param {Element} more
   */
  #prepend(found, more) {
    const older = pairs(found).map((pair) => this.#restored(found, pair, false));
    this.#all = [...older, ...this.#all];
    keepingPlace(() => {
      more.before(...this.#earlier(found), ...nodesOf(older));
      take(more);
    });
  }

  /** Marks the question that is written anew. @param {string | null} id null for none */
  edits(id) {
    const edited = this.indexOf(id);
    this.#all.forEach(({ question }, n) => { question.node.ariaCurrent = n === edited ? "true" : null; });
  }

  /** Shows none. @param {...Node} instead */
  empty(...instead) {
    this.#all = [];
    log.replaceChildren(...instead);
  }

  /**
   * @param {Kept} found
   * @param {import("../ground/stored.js").Pair} pair
   * @param {boolean} joins
   */
  #restored(found, { question, answer }, joins) {
    const asked = { id: question.id, time: question.time, text: textOf(question), files: filesOf(found, question) };
    const running = joins && answer.state === "running";
    return this.#made(asked, running ? this.#answer().wait() : this.#answer().restore(answer));
  }

  #answer() {
    return new Answer(this.#hands);
  }

  /**
   * @param {import("./question.js").Asked} asked
   * @param {Answer} answer
   * @returns {Exchange}
   */
  #made(asked, answer) {
    const exchange = { answer, question: new Question(asked, () => this.#hands.edit(exchange)) };
    return exchange;
  }
}

/** By which an earlier one can be asked anew. @param {Exchange} exchange */
export function idOf({ question, answer }) {
  return answer.id ?? question.id;
}

/** @param {Exchange[]} exchanges */
function nodesOf(exchanges) {
  return exchanges.flatMap(({ question, answer }) => [question.node, answer.node]);
}

/** @param {string} which */
function clear(which) {
  for (const node of log.querySelectorAll(which)) take(node);
}

/** Takes an element out; who was in it is in the log then. @param {Element} node */
function take(node) {
  if (node.contains(document.activeElement)) log.focus({ preventScroll: true });
  node.remove();
}

/**
 * Says below the messages what did not work, until something else is done.
 * @param {string} text
 * @param {...Node} remedies
 */
export function complain(text, ...remedies) {
  log.querySelector(".complaint")?.remove();
  const line = make("div", "error complaint", make("p", "", text), ...remedies);
  line.setAttribute("role", "alert");
  log.append(line);
  if (text === t("unreachable") && !remedies.length) onceReached(() => take(line));
  toEnd();
  return line;
}
