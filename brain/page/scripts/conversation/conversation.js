// The open conversation: its messages, and the turn that answers.

import { scrollToEnd, startScrolling } from "../answer/scrolling.js";
import { Turn, cancel } from "../answer/turn.js";
import { addressOf, idInAddress } from "../base/address.js";
import { make, makeButton } from "../base/dom.js";
import { Refused, errorText } from "../base/server.js";
import {
  fetchConversation, fetchLatest, fetchNewer, pairMessages, waitUntilIdle,
} from "../base/stored_conversation.js";
import { onTabNews } from "../base/tabs.js";
import { taskOfWork, tasks, tasksOf } from "../base/tasks.js";
import { explainError, t } from "../base/texts.js";
import { forgetStrategy, useStrategy } from "../dialogs/choices.js";
import { keepAssist } from "../dialogs/assistance.js";
import { keepPrivacy, openPrivacy } from "../dialogs/privacy.js";
import { makeEmpty } from "./empty.js";
import { Exchanges, complain, idOf } from "./exchanges.js";
import { showWarning } from "./heading.js";
import { showWork } from "./work.js";
import { ConversationState } from "./state.js";
import { bodyOf, keyOf, startTurn } from "./turn_request.js";

/**
 * @typedef {import("../base/types.js").Attached} Attached
 * @typedef {import("../base/types.js").StoredConversation} StoredConversation
 * @typedef {import("./exchanges.js").Exchange} Exchange
 */

const PAIRS = 100; // messages with their answers that open at first
const SLOW = 300; // ms until the page shows that it is loading

class Conversation extends ConversationState {
  #exchanges = new Exchanges({
    retry: () => this.retry(),
    startNew: () => {
      this.startNew();
      this.emit("write");
    },
    edit: (exchange) => this.#edit(exchange),
    decide: async (call, approve) => this.#turn?.decide(call, approve) ?? "",
  });
  /** @type {Turn | null} */
  #turn = null;
  /** @type {string | null} */
  #lostTurn = null; // its first events are no longer available
  /** @type {Element | null} */
  #busy = null; // the notice about an answer to another client
  #opening = Promise.resolve();
  #isWork = false; // it is the conversation of a task, which only the task continues
  /** @type {string | undefined} */
  #workTurn = undefined; // the turn of the task that was visible
  #leaving = new AbortController();
  #sending = new AbortController();

  /**
   * Sends a message, or returns it to the box if that fails.
   * @param {string} message
   * @param {Attached[]} files
   * @param {string | null} [replaces] the id of an earlier message, which is replaced with all that follows it
   */
  async send(message, files, replaces = null) {
    const { id } = this;
    await this.#opening;
    const sent = this.state === "idle" && this.id === id
      && await this.#ask(message, files, replaces, this.#exchanges.indexOf(replaces));
    if (!sent) this.emit("compose", { message, files, replaces });
  }

  /** Sends the last question again. */
  async retry() {
    const { last } = this.#exchanges;
    if (this.state !== "idle" || !last) return;
    const { text, files } = last.question;
    await this.#ask(text, files, idOf(last), this.#exchanges.lastIndex);
  }

  /** Stops the running turn, or the one that is starting. */
  async stop() {
    if (this.state === "sending") {
      this.setState("stopping");
      this.#sending.abort();
    }
    if (this.state !== "writing" || !this.#turn) return;
    this.setState("stopping");
    const problem = await this.#turn.stop();
    if (problem) complain(problem);
    if (problem && this.#turn) this.setState("writing");
  }

  /**
   * Adds a message to the running answer.
   * @param {string} message
   * @returns {Promise<boolean>} whether the server accepted it
   */
  async steer(message) {
    const problem = this.#turn ? await this.#turn.steer(message) : null;
    if (problem) complain(problem);
    return problem === "";
  }

  /** Marks the question that is edited. @param {string | null} id null for none */
  edits(id) {
    this.#exchanges.edits(id);
  }

  /** Leaves this conversation for a new one. */
  startNew() {
    this.#leave();
    if (location.hash) history.pushState(null, "", location.pathname + location.search);
    openPrivacy(null, false);
    this.#exchanges.empty(this.#emptyState());
    forgetStrategy();
    useStrategy();
    this.opened(null, "");
  }

  /**
   * Opens a conversation, at its end.
   * @param {string} id
   */
  open(id) {
    return this.#opening = this.#open(id);
  }

  /** @param {string} id */
  async #open(id) {
    const signal = this.#leave();
    if (id !== this.id) { // what a person chooses from now on is for this conversation
      forgetStrategy();
      openPrivacy(id, false);
    }
    if (location.hash !== addressOf(id)) history.pushState(null, "", addressOf(id));
    this.opens(id);
    const slow = setTimeout(() => this.#exchanges.empty(make("p", "opening small", t("opening"))), SLOW);
    try {
      const found = await fetchConversation(id, `limit=${PAIRS}`, signal);
      if (!signal.aborted) this.#show(found);
    } catch (error) {
      if (!signal.aborted) this.#notOpened(id, error);
    } finally {
      clearTimeout(slow);
    }
  }

  /** Shows a report on tasks, which may be the first message. @param {import("../base/types.js").Report} report */
  showReport({ conversation_id: id }) {
    if (id !== this.id || this.state !== "idle") return;
    if (this.#exchanges.last) this.catchUp();
    else this.open(id);
  }

  /** Shows a task that a person created here. @param {import("../base/types.js").Task} task */
  showTask(task) {
    const { conversation_id: id } = task;
    if (!this.id) {
      history.replaceState(null, "", addressOf(id));
      this.#showUnwritten(id, task);
    } else if (id === this.id) this.showTasks();
    scrollToEnd();
  }

  /**
   * Shows a conversation before its first report or run.
   * @param {string} id
   * @param {import("../base/types.js").Task} task
   */
  #showUnwritten(id, { title, private: isPrivate = false }) {
    openPrivacy(id, isPrivate);
    this.opened(id, title);
    this.showTasks();
  }

  /** Shows the cards of this conversation's tasks; or the next run, if it is the conversation of a task. */
  showTasks() {
    if (!this.id) return;
    const work = taskOfWork(this.id), turn = work?.turn_id;
    if (this.#isWork || work) {
      this.#isWork = true;
      showWork(work);
      if (this.state !== "idle" || !turn || turn === this.#workTurn) return;
      this.#workTurn = turn;
      this.open(this.id);
    } else if (this.state === "idle") this.#exchanges.placeTasks(tasksOf(this.id));
  }

  /** Shows messages from other tabs and devices. */
  async catchUp() {
    const { signal } = this.#leaving, last = this.#exchanges.last?.answer.id;
    if (this.state !== "idle" || !this.id || !last || document.hidden) return;
    const update = await fetchNewer(this.id, last, signal);
    if (!update || this.state !== "idle" || this.#exchanges.last?.answer.id !== last) return;
    const { found, news } = update;
    this.renamed(found.id, taskOfWork(found.id)?.title ?? found.title);
    if (news === "more") await this.open(found.id);
    if (news !== "one") return;
    this.#exchanges.append(found, this.#canJoin(found));
    this.#join(found);
  }

  /**
   * @param {string} message
   * @param {Attached[]} files
   * @param {string | null} replaces
   * @param {number} index of the first exchange to remove; -1 for none
   * @returns {Promise<boolean>} whether it was sent
   */
  async #ask(message, files, replaces, index) {
    const left = this.#leaving.signal, { signal } = (this.#sending = new AbortController());
    const removed = this.#exchanges.cut(index), exchange = this.#exchanges.ask(message, files);
    this.setState("sending");
    const question = { message, files, conversation: this.id, replaces };
    try {
      const body = bodyOf({ ...question, key: keyOf(question) });
      const turn = await startTurn(body, signal, () => showWarning(t("sendsAgain")));
      if (!left.aborted) this.#startFollowing(exchange, turn, removed);
      if (signal.aborted) await (left.aborted ? cancel(turn.turn_id) : this.stop());
      this.emit("changed");
      return true;
    } catch (error) {
      const problem = errorText(error);
      if (left.aborted) return false;
      this.#takeBack(removed);
      if (error instanceof Refused && error.code === "busy") await this.#showOtherAnswer();
      else complain(problem);
      return false;
    } finally {
      if (!left.aborted) showWarning("");
    }
  }

  /**
   * @param {Exchange} exchange
   * @param {{ turn_id: string, conversation_id: string }} turn
   * @param {Exchange[]} removed
   */
  #startFollowing(exchange, { turn_id, conversation_id }, removed) {
    keepPrivacy(conversation_id);
    keepAssist(conversation_id);
    if (this.id !== conversation_id) {
      history.replaceState(null, "", addressOf(conversation_id));
      this.opened(conversation_id, exchange.question.text.trim().split("\n")[0].slice(0, 80));
    }
    this.#follow(turn_id, exchange, removed);
  }

  /** Shows the answer to another client, with a notice until it ends. */
  async #showOtherAnswer() {
    await this.catchUp();
    this.#busy = complain(t("busy"));
  }

  /** @param {Exchange[]} removed */
  #takeBack(removed) {
    this.#exchanges.cut(this.#exchanges.lastIndex);
    this.#exchanges.putBack(removed);
    if (!this.#exchanges.last) this.#exchanges.empty(this.#emptyState());
    this.setState("idle");
    scrollToEnd();
  }

  #emptyState() {
    return makeEmpty((question, files) => this.send(question, files));
  }

  /** @param {Exchange} exchange */
  #edit(exchange) {
    const { text, files } = exchange.question;
    if (this.state === "idle") this.emit("compose", { message: text, files, replaces: idOf(exchange) });
  }

  /**
   * @param {string} id
   * @param {Exchange} exchange
   * @param {Exchange[]} [removed] the exchanges that its answer replaces
   */
  #follow(id, exchange, removed = []) {
    const turn = this.#turn = new Turn(id, exchange.answer, {
      started: useStrategy,
      ended: () => this.#ended(turn, exchange, removed),
      lost: (lost) => showWarning(lost ? t("lost") : ""),
      gone: () => this.#gone(turn, exchange),
    });
    this.setState("writing");
  }

  /**
   * @param {Turn} turn
   * @param {Exchange} exchange
   * @param {Exchange[]} removed
   */
  async #ended(turn, exchange, removed) {
    const { signal } = this.#leaving, { answer } = exchange;
    this.#turn = null;
    this.#busy?.remove();
    answer.id ??= await turn.message();
    if (removed.length && answer.problem) await this.#lookBack(exchange, removed, signal);
    if (signal.aborted) return;
    this.setState("idle");
    const unread = answer.wasRewound ? answer.takeBack() : "";
    if (unread) this.emit("compose", { message: unread });
    if ((this.#isWork || answer.lacksParts) && this.id) this.open(this.id); // a run that continued has earlier parts
    else this.showTasks();
    this.emit("changed");
  }

  /**
   * Shows the previous answer again, since a failed replacement is not stored.
   * @param {Exchange} exchange
   * @param {Exchange[]} removed
   * @param {AbortSignal} signal
   */
  async #lookBack({ question, answer }, removed, signal) {
    const now = await fetchLatest(this.id, 1, signal);
    if (!now || signal.aborted || now.answer?.id === answer.id) return;
    this.#takeBack(removed);
    complain(answer.problem);
    const { text, files } = question;
    if (text !== removed[0].question.text) this.emit("compose", { message: text, files, replaces: idOf(removed[0]) });
  }

  /**
   * Shows the stored answer when the events are gone, for example after a restart.
   * @param {Turn} turn
   * @param {Exchange} exchange
   */
  async #gone(turn, exchange) {
    const { signal } = this.#leaving;
    this.#lostTurn = turn.id;
    const now = await fetchLatest(this.id, PAIRS, signal);
    if (signal.aborted) return;
    if (!now?.answer || now.answer.state === "interrupted") this.#keepCut(exchange, now?.answer);
    else {
      this.#leave();
      this.#show(now.found);
    }
    this.emit("changed");
  }

  /**
   * Keeps the text that was written before the server stopped, and returns additions to the box.
   * @param {Exchange} exchange
   * @param {import("../base/types.js").StoredAnswer | undefined} cut
   */
  #keepCut({ answer }, cut) {
    this.#turn = null;
    showWarning("");
    this.setState("idle");
    answer.id = cut?.id ?? null;
    answer.fail(cut ? explainError("interrupted") : t("cut"), true);
    const message = answer.takeBack();
    if (message) this.emit("compose", { message });
  }

  /** @param {StoredConversation} found */
  #show(found) {
    openPrivacy(found.id, Boolean(found.private));
    const [question] = found.messages, work = taskOfWork(found.id);
    this.#isWork = Boolean(work) || (question?.role === "user" && question.source === "task");
    this.#workTurn = found.turn_id ?? work?.turn_id;
    showWork(this.#isWork ? work : null);
    this.#exchanges.show(found, this.#canJoin(found));
    useStrategy(pairMessages(found).at(-1)?.answer.strategy);
    this.opened(found.id, work?.title ?? found.title);
    this.#join(found);
    this.showTasks();
  }

  /** @param {StoredConversation} found */
  #canJoin({ running, turn_id }) {
    return Boolean(running && turn_id && turn_id !== this.#lostTurn);
  }

  /** Follows an answer that is being written. @param {StoredConversation} found */
  #join(found) {
    const { last } = this.#exchanges;
    if (last && found.turn_id && this.#canJoin(found)) {
      this.#follow(found.turn_id, last);
      this.#turn?.showTimes();
    } else if (found.running) waitUntilIdle(found.id, this.#leaving.signal).then(() => this.open(found.id), () => {});
  }

  /**
   * @param {string} id
   * @param {unknown} error
   */
  #notOpened(id, error) {
    this.#exchanges.empty();
    const isMissing = error instanceof Refused && error.status === 404;
    const task = taskOfWork(id) ?? tasksOf(id)[0];
    if (isMissing && task) this.#showUnwritten(id, task);
    else if (isMissing) {
      openPrivacy(null, false);
      this.opened(null, "");
      complain(t("noConversation"), makeButton(t("newConversation"), () => this.startNew()));
    } else complain(errorText(error), makeButton(t("retry"), () => this.open(id), { icon: "retry", text: true }));
  }

  /** Leaves the conversation. Its turn continues on the server. */
  #leave() {
    this.#leaving.abort();
    this.#leaving = new AbortController();
    this.#turn?.leave();
    this.#turn = null;
    this.#isWork = false;
    showWork(null);
    showWarning("");
    this.setState("idle");
    return this.#leaving.signal;
  }
}

export const conversation = new Conversation();

/** Opens the conversation in the URL, now and after each navigation. */
export function startConversation() {
  startScrolling();
  window.addEventListener("hashchange", openFromUrl);
  onTabNews(({ task, report }) => { if (!task && !report) conversation.catchUp(); });
  document.addEventListener("visibilitychange", () => conversation.catchUp());
  tasks.addEventListener("changed", () => conversation.showTasks());
  tasks.addEventListener("report", (event) => conversation.showReport(/** @type {CustomEvent} */ (event).detail));
  openFromUrl();
}

function openFromUrl() {
  const id = idInAddress();
  if (id === null) conversation.startNew();
  else if (id !== conversation.id) conversation.open(id);
}
