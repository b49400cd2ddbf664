// Conversation: the open one: what is asked in it, and the turn that answers.

import { toEnd } from "../answer/reading.js";
import { Turn, cancel } from "../answer/turn.js";
import { addressOf } from "../ground/address.js";
import { button, make } from "../ground/dom.js";
import { Refused, told } from "../ground/server.js";
import { settled, stored } from "../ground/stored.js";
import { t } from "../ground/texts.js";
import { begin, bodyOf, keyOf } from "./asking.js";
import { Current } from "./current.js";
import { makeEmpty } from "./empty.js";
import { Exchanges, complain, idOf } from "./exchanges.js";
import { warn } from "./heading.js";
import { latest, newer } from "./latest.js";

/**
 * @typedef {import("../ground/types.js").Attached} Attached
 * @typedef {import("../ground/types.js").Kept} Kept
 * @typedef {import("./exchanges.js").Exchange} Exchange
 */

const PAIRS = 100; // questions with their answers that are opened at once
const SLOW = 300; // ms until it is said that something takes time

class Conversation extends Current {
  #exchanges = new Exchanges({
    retry: () => this.retry(),
    fresh: () => {
      this.fresh();
      this.tell("write");
    },
    edit: (exchange) => this.#edit(exchange),
    decide: async (call, approve) => this.#turn?.decide(call, approve) ?? "",
  });
  /** @type {Turn | null} */
  #turn = null;
  /** @type {string | null} */
  #lostTurn = null; // whose events are no longer there from the first on
  /** @type {Element | null} */
  #busy = null; // what says that somebody else was quicker
  #opening = Promise.resolve();
  #leaving = new AbortController();
  #sending = new AbortController();

  /**
   * Asks. What could not be sent is given back.
   * @param {string} message
   * @param {Attached[]} files
   * @param {string | null} [replaces] the id of an earlier question or answer, which goes with all that follows it
   */
  async send(message, files, replaces = null) {
    const { id } = this;
    await this.#opening;
    const sent = this.state === "idle" && this.id === id
      && await this.#ask(message, files, replaces, this.#exchanges.indexOf(replaces));
    if (!sent) this.tell("compose", { message, files, replaces });
  }

  /** Asks the last question again. */
  async retry() {
    const { last } = this.#exchanges;
    if (this.state !== "idle" || !last) return;
    const { text, files } = last.question;
    await this.#ask(text, files, idOf(last), this.#exchanges.lastIndex);
  }

  /** Ends the turn that is written; one that is about to begin as soon as it has begun. */
  async stop() {
    if (this.state === "sending") {
      this.become("stopping");
      this.#sending.abort();
    }
    if (this.state !== "writing" || !this.#turn) return;
    this.become("stopping");
    const problem = await this.#turn.stop();
    if (problem) complain(problem);
    if (problem && this.#turn) this.become("writing");
  }

  /**
   * Adds something to the answer that is written.
   * @param {string} message
   * @returns {Promise<boolean>} whether it was taken
   */
  async steer(message) {
    const problem = this.#turn ? await this.#turn.steer(message) : null;
    if (problem) complain(problem);
    return problem === "";
  }

  /** Marks the question that is written anew. @param {string | null} id null for none */
  edits(id) {
    this.#exchanges.edits(id);
  }

  /** Leaves this conversation for a new one. */
  fresh() {
    this.#leave();
    if (location.hash) history.pushState(null, "", location.pathname + location.search);
    this.#exchanges.empty(this.#emptyState());
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
    if (location.hash !== addressOf(id)) history.pushState(null, "", addressOf(id));
    this.opens(id);
    const slow = setTimeout(() => this.#exchanges.empty(make("p", "opening small", t("opening"))), SLOW);
    try {
      const found = await stored(id, `limit=${PAIRS}`, signal);
      if (!signal.aborted) this.#show(found);
    } catch (error) {
      if (!signal.aborted) this.#notOpened(id, error);
    } finally {
      clearTimeout(slow);
    }
  }

  /** Looks whether it went on elsewhere: in another tab, on another machine, while this one slept. */
  async catchUp() {
    const { signal } = this.#leaving, last = this.#exchanges.last?.answer.id;
    if (this.state !== "idle" || !this.id || !last || document.hidden) return;
    const seen = await newer(this.id, last, signal);
    if (!seen || this.state !== "idle" || this.#exchanges.last?.answer.id !== last) return; // another look was quicker
    const { found, news } = seen;
    this.renamed(found.id, found.title);
    if (news === "more") await this.open(found.id);
    if (news !== "one") return;
    this.#exchanges.append(found, this.#canJoin(found));
    this.#join(found);
  }

  /**
   * @param {string} message
   * @param {Attached[]} files
   * @param {string | null} replaces
   * @param {number} index from which on exchanges go; -1 for none
   * @returns {Promise<boolean>} whether it was sent
   */
  async #ask(message, files, replaces, index) {
    const left = this.#leaving.signal, { signal } = (this.#sending = new AbortController());
    const gone = this.#exchanges.cut(index), exchange = this.#exchanges.ask(message, files);
    this.become("sending");
    const asked = { message, files, conversation: this.id, replaces };
    try {
      const begun = await begin(bodyOf({ ...asked, key: keyOf(asked) }), signal, () => warn(t("sendsAgain")));
      if (!left.aborted) this.#begun(exchange, begun, gone);
      if (signal.aborted) await (left.aborted ? cancel(begun.turn_id) : this.stop());
      this.tell("changed");
      return true;
    } catch (error) {
      const problem = told(error);
      if (left.aborted) return false;
      this.#takeBack(gone);
      if (error instanceof Refused && error.code === "busy") await this.#wasQuicker();
      else complain(problem);
      return false;
    } finally {
      if (!left.aborted) warn("");
    }
  }

  /**
   * @param {Exchange} exchange
   * @param {{ turn_id: string, conversation_id: string }} begun
   * @param {Exchange[]} gone
   */
  #begun(exchange, { turn_id, conversation_id }, gone) {
    if (this.id !== conversation_id) {
      history.replaceState(null, "", addressOf(conversation_id));
      this.opened(conversation_id, exchange.question.text.trim().split("\n")[0].slice(0, 80));
    }
    this.#follow(turn_id, exchange, gone);
  }

  /** Somebody else asked in it, whose answer is shown; that is said until it has ended. */
  async #wasQuicker() {
    await this.catchUp();
    this.#busy = complain(t("busy"));
  }

  /** @param {Exchange[]} gone */
  #takeBack(gone) {
    this.#exchanges.cut(this.#exchanges.lastIndex);
    this.#exchanges.putBack(gone);
    if (!this.#exchanges.last) this.#exchanges.empty(this.#emptyState());
    this.become("idle");
    toEnd();
  }

  #emptyState() {
    return makeEmpty((question, files) => this.send(question, files));
  }

  /** @param {Exchange} exchange */
  #edit(exchange) {
    const { text, files } = exchange.question;
    if (this.state === "idle") this.tell("compose", { message: text, files, replaces: idOf(exchange) });
  }

  /**
   * @param {string} id
   * @param {Exchange} exchange
   * @param {Exchange[]} [gone] those that it takes the place of when it has an answer
   */
  #follow(id, exchange, gone = []) {
    const turn = this.#turn = new Turn(id, exchange.answer, {
      ended: () => this.#ended(turn, exchange, gone),
      lost: (lost) => warn(lost ? t("lost") : ""),
      gone: () => this.#gone(turn, exchange),
    });
    this.become("writing");
  }

  /**
   * @param {Turn} turn
   * @param {Exchange} exchange
   * @param {Exchange[]} gone
   */
  async #ended(turn, exchange, gone) {
    const { signal } = this.#leaving, { answer } = exchange;
    this.#turn = null;
    this.#busy?.remove();
    answer.id ??= await turn.message();
    if (gone.length && answer.problem) await this.#lookBack(exchange, gone, signal);
    if (signal.aborted) return;
    this.become("idle");
    this.tell("changed");
  }

  /**
   * Of what failed without an answer nothing is kept where there was one before: that is still there.
   * @param {Exchange} exchange
   * @param {Exchange[]} gone
   * @param {AbortSignal} signal
   */
  async #lookBack({ question, answer }, gone, signal) {
    const now = await latest(this.id, 1, signal);
    if (!now || signal.aborted || now.answer?.id === answer.id) return;
    this.#takeBack(gone);
    complain(answer.problem);
    const { text, files } = question;
    if (text !== gone[0].question.text) this.tell("compose", { message: text, files, replaces: idOf(gone[0]) });
  }

  /**
   * The events are gone, as behind a restart of the server; what was kept of the answer is shown.
   * @param {Turn} turn
   * @param {Exchange} exchange
   */
  async #gone(turn, exchange) {
    const { signal } = this.#leaving;
    this.#lostTurn = turn.id;
    const now = await latest(this.id, PAIRS, signal);
    if (signal.aborted) return;
    if (!now?.answer || now.answer.state === "interrupted") this.#keepCut(exchange, now?.answer);
    else {
      this.#leave();
      this.#show(now.found);
    }
    this.tell("changed");
  }

  /**
   * What was written before the server stopped is nowhere but here, and what was put in nowhere at all.
   * @param {Exchange} exchange
   * @param {import("../ground/types.js").KeptAnswer | undefined} cut
   */
  #keepCut({ answer }, cut) {
    this.#turn = null;
    warn("");
    this.become("idle");
    answer.id = cut?.id ?? null;
    answer.fail(t(cut ? "interrupted" : "cut"), true);
    const message = answer.takeBack();
    if (message) this.tell("compose", { message });
  }

  /** @param {Kept} found */
  #show(found) {
    this.#exchanges.show(found, this.#canJoin(found));
    this.opened(found.id, found.title);
    this.#join(found);
  }

  /** @param {Kept} found */
  #canJoin({ running, turn_id }) {
    return Boolean(running && turn_id && turn_id !== this.#lostTurn);
  }

  /** Goes on with an answer that is being written. @param {Kept} found */
  #join(found) {
    const { last } = this.#exchanges;
    if (last && found.turn_id && this.#canJoin(found)) this.#follow(found.turn_id, last);
    else if (found.running) settled(found.id, this.#leaving.signal).then(() => this.open(found.id), () => {});
  }

  /**
   * @param {string} id
   * @param {unknown} error
   */
  #notOpened(id, error) {
    this.#exchanges.empty();
    if (error instanceof Refused && error.status === 404) {
      this.opened(null, "");
      complain(t("noConversation"), button(t("fresh"), () => this.fresh()));
    } else complain(told(error), button(t("retry"), () => this.open(id), { icon: "retry", text: true }));
  }

  /** Lets go of what is open. What is asked or written goes on in the server. */
  #leave() {
    this.#leaving.abort();
    this.#leaving = new AbortController();
    this.#turn?.leave();
    this.#turn = null;
    warn("");
    this.become("idle");
    return this.#leaving.signal;
  }
}

export const conversation = new Conversation();
