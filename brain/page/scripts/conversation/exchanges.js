// The messages and answers of the open conversation, in the log.

import { Answer } from "../answer/answer.js";
import { follow, isAtEnd, keepPlace, log, scrollToEnd, scrollToStart } from "../answer/scrolling.js";
import { taskCard } from "../answer/task_card.js";
import { make, makeButton } from "../base/dom.js";
import { onReachable } from "../base/server.js";
import { fetchConversation, filesOf, pairMessages, textOf } from "../base/stored_conversation.js";
import { t } from "../base/texts.js";
import { onVisible } from "../base/visibility.js";
import { Question } from "./question.js";

/**
 * @typedef {import("../base/types.js").Attached} Attached
 * @typedef {import("../base/types.js").StoredConversation} StoredConversation
 * @typedef {import("../base/types.js").Task} Task
 * @typedef {{ question: Question, answer: Answer }} Exchange
 * @typedef {import("../answer/answer.js").Actions & { edit: (exchange: Exchange) => void }} Actions
 */

const EARLIER = 50; // messages with their answers per request
const PATIENCE = 20_000; // ms until such a request is aborted

/** The exchanges of one conversation, oldest first. */
export class Exchanges {
  /** @type {Exchange[]} */
  #all = [];
  #actions;

  /** @param {Actions} actions */
  constructor(actions) {
    this.#actions = actions;
  }

  get last() {
    return this.#all.at(-1);
  }

  get lastIndex() {
    return this.#all.length - 1;
  }

  /**
   * The index of the exchange with this id, or -1.
   * @param {string | null} id
   */
  indexOf(id) {
    return id ? this.#all.findIndex(({ question, answer }) => question.id === id || answer.id === id) : -1;
  }

  /**
   * Adds a new message.
   * @param {string} text
   * @param {Attached[]} files
   */
  ask(text, files) {
    const exchange = this.#make({ text, files }, this.#answer().wait());
    this.#all.push(exchange);
    clear(".complaint, .empty, .opening");
    log.append(...nodesOf([exchange]));
    scrollToStart(exchange.question.node, exchange.answer.node);
    return exchange;
  }

  /**
   * Removes and returns the exchanges from this index on.
   * @param {number} index -1 for none
   */
  cut(index) {
    const removed = index < 0 ? [] : this.#all.splice(index);
    for (const node of nodesOf(removed)) take(node);
    return removed;
  }

  /** @param {Exchange[]} removed exchanges that `cut` returned */
  putBack(removed) {
    this.#all.push(...removed);
    log.append(...nodesOf(removed));
  }

  /**
   * Shows another conversation.
   * @param {StoredConversation} found the stored conversation
   * @param {boolean} joins whether the page can follow the running answer
   */
  show(found, joins) {
    this.#all = pairMessages(found).map((pair) => this.#restore(found, pair, joins));
    log.replaceChildren(...this.#earlier(found), ...nodesOf(this.#all));
    scrollToEnd();
  }

  /**
   * Adds the last exchange of a conversation, above any complaint.
   * @param {StoredConversation} found
   * @param {boolean} joins
   */
  append(found, joins) {
    const added = pairMessages(found).slice(-1).map((pair) => this.#restore(found, pair, joins)), along = isAtEnd();
    this.#all.push(...added);
    clear(".empty, .opening");
    const complaint = log.querySelector(".complaint");
    if (complaint) complaint.before(...nodesOf(added));
    else log.append(...nodesOf(added));
    for (const { question, answer } of along ? added : []) scrollToStart(question.node, answer.node);
  }

  /** The button that loads earlier messages, if there are any. @param {StoredConversation} found */
  #earlier({ id, earlier }) {
    if (!earlier) return [];
    const load = async () => {
      if (more.disabled) return;
      more.disabled = true;
      const patience = AbortSignal.timeout(PATIENCE);
      const found = await fetchConversation(id, `limit=${EARLIER}&before=${earlier}`, patience).catch(() => null);
      more.disabled = false;
      if (found && more.isConnected) this.#prepend(found, more);
    };
    const more = makeButton(t("earlier"), load, { className: "earlier" });
    onVisible(more, load);
    return [more];
  }

  /**
   * @param {StoredConversation} found
   * @param {Element} more
   */
  #prepend(found, more) {
    const older = pairMessages(found).map((pair) => this.#restore(found, pair, false));
    this.#all = [...older, ...this.#all];
    keepPlace(() => {
      more.before(...this.#earlier(found), ...nodesOf(older));
      take(more);
    });
  }

  /** Adds the cards of tasks that no answer created, each where it belongs in time. @param {Task[]} tasks */
  placeTasks(tasks) {
    const missing = tasks.filter(({ id }) => !log.querySelector(`[data-task="${CSS.escape(id)}"]`));
    const oldest = log.querySelector(".earlier") ? this.#all[0]?.question.time ?? "" : "";
    for (const { id, created } of missing.reverse()) {
      if (created < oldest) continue;
      const later = this.#all.find(({ question }) => question.time && question.time > created);
      const place = later?.question.node ?? log.querySelector(".complaint");
      clear(".empty, .opening");
      if (place) place.before(taskCard(id).node);
      else log.append(taskCard(id).node);
    }
    follow();
  }

  /** Marks the question that is edited. @param {string | null} id null for none */
  edits(id) {
    const edited = this.indexOf(id);
    this.#all.forEach(({ question }, n) => { question.node.ariaCurrent = n === edited ? "true" : null; });
  }

  /** Removes all exchanges. @param {...Node} instead */
  empty(...instead) {
    this.#all = [];
    log.replaceChildren(...instead);
  }

  /**
   * @param {StoredConversation} found
   * @param {import("../base/stored_conversation.js").Pair} pair
   * @param {boolean} joins
   */
  #restore(found, { question, answer }, joins) {
    const { id, time, source } = question;
    const data = { id, time, source, text: textOf(question), files: filesOf(found, question) };
    const running = joins && answer.state === "running";
    return this.#make(data, running ? this.#answer().wait() : this.#answer().restore(answer));
  }

  #answer() {
    return new Answer(this.#actions);
  }

  /**
   * @param {import("./question.js").QuestionData} data
   * @param {Answer} answer
   * @returns {Exchange}
   */
  #make(data, answer) {
    const exchange = { answer, question: new Question(data, () => this.#actions.edit(exchange)) };
    return exchange;
  }
}

/** The id that a replacement names. @param {Exchange} exchange */
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

/** Removes an element. If it had the focus, the log gets it. @param {Element} node */
function take(node) {
  if (node.contains(document.activeElement)) log.focus({ preventScroll: true });
  node.remove();
}

/**
 * Shows an error below the messages until the next action.
 * @param {string} text
 * @param {...Node} remedies
 */
export function complain(text, ...remedies) {
  log.querySelector(".complaint")?.remove();
  const line = make("div", "error complaint", make("p", "", text), ...remedies);
  line.setAttribute("role", "alert");
  log.append(line);
  if (text === t("unreachable") && !remedies.length) onReachable(() => take(line));
  scrollToEnd();
  return line;
}
