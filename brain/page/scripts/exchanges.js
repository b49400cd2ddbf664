// Room: the questions and answers of the open conversation, in the log.

import { Answer } from "./answer.js";
import { make } from "./dom.js";
import { Question } from "./question.js";
import { keepingPlace, log, toEnd } from "./reading.js";
import { filesOf, pairs, textOf } from "./stored.js";

/**
 * @typedef {import("./types.js").Attached} Attached
 * @typedef {{ question: Question, answer: Answer }} Exchange
 * @typedef {object} Hands what a person can do with them
 * @property {() => void} retry
 * @property {(exchange: Exchange) => void} edit
 * @property {(call: string, approve: boolean) => Promise<string>} decide
 */

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

  get lastPlace() {
    return this.#all.length - 1;
  }

  /**
   * The place of a question or an answer, or -1.
   * @param {string | null} id
   */
  placeOf(id) {
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
    clear();
    log.append(...nodesOf([exchange]));
    toEnd();
    return exchange;
  }

  /**
   * Takes off those from a place on.
   * @param {number} place -1 for none
   */
  cut(place) {
    const gone = place < 0 ? [] : this.#all.splice(place);
    for (const node of nodesOf(gone)) node.remove();
    return gone;
  }

  /** @param {Exchange[]} gone what was taken off, as it was */
  putBack(gone) {
    this.#all.push(...gone);
    log.append(...nodesOf(gone));
  }

  /**
   * Shows a conversation instead of what is there.
   * @param {any} found as the server keeps it
   * @param {boolean} joins whether the answer that is being written can be followed
   * @param {Node[]} head
   */
  show(found, joins, head) {
    this.#all = pairs(found).map((pair) => this.#restored(found, pair, joins));
    log.replaceChildren(...head, ...nodesOf(this.#all));
    toEnd();
  }

  /**
   * Adds the last exchange of a conversation.
   * @param {any} found
   * @param {boolean} joins
   */
  append(found, joins) {
    const added = pairs(found).slice(-1).map((pair) => this.#restored(found, pair, joins));
    this.#all.push(...added);
    clear();
    log.append(...nodesOf(added));
  }

  /**
   * Puts earlier ones before the others, in the place of what asked for them.
   * @param {any} found
   * @param {HTMLElement} place
   * @param {Node[]} head
   */
  prepend(found, place, head) {
    const older = pairs(found).map((pair) => this.#restored(found, pair, false));
    this.#all = [...older, ...this.#all];
    keepingPlace(() => place.replaceWith(...head, ...nodesOf(older)));
    older[0]?.question.node.querySelector("button")?.focus({ preventScroll: true });
  }

  /** Shows none. @param {...Node} instead */
  empty(...instead) {
    this.#all = [];
    log.replaceChildren(...instead);
  }

  /**
   * @param {any} found
   * @param {import("./stored.js").Pair} pair
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

/** @param {Exchange[]} exchanges */
function nodesOf(exchanges) {
  return exchanges.flatMap(({ question, answer }) => [question.node, answer.node]);
}

function clear() {
  for (const node of log.querySelectorAll(".complaint, .empty, .opening")) node.remove();
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
  toEnd();
}
