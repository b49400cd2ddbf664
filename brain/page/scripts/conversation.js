// Room: the open conversation: what is asked in it, and the turn that answers.

import { addressOf, idInAddress } from "./address.js";
import { begin, bodyOf, keyOf } from "./asking.js";
import { button, make } from "./dom.js";
import { makeEmpty } from "./empty.js";
import { Exchanges, complain } from "./exchanges.js";
import { entitle, warn } from "./heading.js";
import { log, startReading, toEnd } from "./reading.js";
import { Refused, request, told } from "./server.js";
import { pairs, stored } from "./stored.js";
import { others } from "./tabs.js";
import { t } from "./texts.js";
import { Turn } from "./turn.js";

/**
 * @typedef {import("./types.js").Attached} Attached
 * @typedef {import("./exchanges.js").Exchange} Exchange
 * @typedef {"idle" | "sending" | "writing" | "stopping"} State
 */

const PAIRS = 100; // questions with their answers that are opened at once
const WATCH = 2000; // ms between two looks at an answer that can only be read when it is whole
const SLOW = 300; // ms until it is said that something takes time

class Conversation extends EventTarget {
  /** @type {State} */
  state = "idle";
  /** @type {string | null} */
  id = null;
  title = "";
  #exchanges = new Exchanges({
    retry: () => this.retry(),
    edit: (exchange) => this.#edit(exchange),
    decide: async (call, approve) => this.#turn?.decide(call, approve) ?? "",
  });
  /** @type {Turn | null} */
  #turn = null;
  /** @type {string | null} */
  #lostTurn = null; // whose events are no longer there from the first on
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
      && await this.#ask(message, files, replaces, this.#exchanges.placeOf(replaces));
    if (!sent) this.#tell("compose", { message, files, replaces });
  }

  /** Asks the last question again. */
  async retry() {
    const { last } = this.#exchanges;
    if (this.state !== "idle" || !last) return;
    const { text, files } = last.question;
    await this.#ask(text, files, idOf(last), this.#exchanges.lastPlace);
  }

  /** Ends the turn that is written, or gives up sending. */
  async stop() {
    if (this.state === "sending") this.#sending.abort();
    if (this.state !== "writing" || !this.#turn) return;
    this.#become("stopping");
    const problem = await this.#turn.stop();
    if (problem) complain(problem);
    if (problem && this.#turn) this.#become("writing");
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

  /** Leaves this conversation for a new one. */
  async fresh() {
    this.#leave();
    if (location.hash) history.pushState(null, "", location.pathname + location.search);
    this.#exchanges.empty(this.#emptyState());
    this.#name(null, "");
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
    this.id = id;
    this.title = ""; // so that it is told as opened, whatever it is called
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

  /**
   * It was given another title, here or elsewhere.
   * @param {string} id
   * @param {string} name
   */
  renamed(id, name) {
    if (id === this.id) this.#name(id, name);
  }

  /** Looks whether it went on elsewhere: in another tab, on another machine, while this one slept. */
  async catchUp() {
    const { signal } = this.#leaving, last = this.#exchanges.last?.answer.id;
    if (this.state !== "idle" || !this.id || !last || document.hidden) return;
    const found = await stored(this.id, "limit=2", signal).catch(() => null);
    if (!found || signal.aborted || this.state !== "idle") return;
    if (this.#exchanges.last?.answer.id !== last) return; // another look was quicker
    this.renamed(found.id, found.title);
    const [before, newest] = [undefined, ...pairs(found)].slice(-2);
    if (newest?.answer.id === last) return;
    if (before?.answer.id !== last) return this.open(found.id);
    this.#exchanges.append(found, this.#canJoin(found));
    this.#join(found);
  }

  /**
   * @param {string} message
   * @param {Attached[]} files
   * @param {string | null} replaces
   * @param {number} place from which on exchanges go; -1 for none
   * @returns {Promise<boolean>} whether it was sent
   */
  async #ask(message, files, replaces, place) {
    const left = this.#leaving.signal, { signal } = (this.#sending = new AbortController());
    const gone = this.#exchanges.cut(place), exchange = this.#exchanges.ask(message, files);
    this.#become("sending");
    const asked = { message, files, conversation: this.id, replaces };
    try {
      const begun = await begin(bodyOf({ ...asked, key: keyOf(asked) }), signal, () => warn(t("sendsAgain")));
      if (!left.aborted) this.#begun(exchange, begun);
      this.#tell("changed");
      return true;
    } catch (error) {
      const problem = signal.aborted ? "" : told(error);
      if (left.aborted) return false;
      this.#takeBack(gone);
      if (error instanceof Refused && error.code === "busy") await this.catchUp();
      if (problem) complain(problem);
      return false;
    } finally {
      if (!left.aborted) warn("");
    }
  }

  /**
   * @param {Exchange} exchange
   * @param {{ turn_id: string, conversation_id: string }} begun
   */
  #begun(exchange, { turn_id, conversation_id }) {
    if (this.id !== conversation_id) {
      history.replaceState(null, "", addressOf(conversation_id));
      this.#name(conversation_id, exchange.question.text.trim().split("\n")[0].slice(0, 80));
    }
    this.#follow(turn_id, exchange);
  }

  /** @param {Exchange[]} gone */
  #takeBack(gone) {
    this.#exchanges.cut(this.#exchanges.lastPlace);
    this.#exchanges.putBack(gone);
    if (!this.#exchanges.last) this.#exchanges.empty(this.#emptyState());
    this.#become("idle");
    toEnd();
  }

  #emptyState() {
    return makeEmpty((question, files) => this.send(question, files));
  }

  /** @param {Exchange} exchange */
  #edit(exchange) {
    const { text, files } = exchange.question;
    if (this.state === "idle") this.#tell("compose", { message: text, files, replaces: idOf(exchange) });
  }

  /**
   * @param {string} id
   * @param {Exchange} exchange
   */
  #follow(id, exchange) {
    const turn = this.#turn = new Turn(id, exchange.answer, {
      ended: () => this.#ended(turn, exchange),
      lost: (lost) => warn(lost ? t("lost") : ""),
      gone: () => this.#gone(turn, exchange),
    });
    this.#become("writing");
  }

  /**
   * @param {Turn} turn
   * @param {Exchange} exchange
   */
  async #ended(turn, { answer }) {
    this.#turn = null;
    this.#become("idle");
    answer.id ??= await turn.message();
    this.#tell("changed");
  }

  /**
   * The events are gone, as behind a restart of the server; what was kept of the answer is shown.
   * @param {Turn} turn
   * @param {Exchange} exchange
   */
  async #gone(turn, exchange) {
    const { signal } = this.#leaving;
    this.#lostTurn = turn.id;
    const found = await stored(this.id ?? "", `limit=${PAIRS}`, signal).catch(() => null);
    if (signal.aborted) return;
    const kept = found && pairs(found).at(-1)?.answer;
    if (!kept || kept.state === "interrupted") this.#keepCut(exchange, kept);
    else {
      this.#leave();
      this.#show(found);
    }
    this.#tell("changed");
  }

  /**
   * What was written before the server stopped is nowhere but here.
   * @param {Exchange} exchange
   * @param {any} kept
   */
  #keepCut({ answer }, kept) {
    this.#turn = null;
    warn("");
    this.#become("idle");
    answer.id = kept?.id ?? null;
    answer.fail(t(kept ? "interrupted" : "cut"), true);
  }

  /** @param {any} found */
  #show(found) {
    this.#exchanges.show(found, this.#canJoin(found));
    this.#name(found.id, found.title);
    this.#join(found);
  }

  /** @param {any} found */
  #canJoin({ running, turn_id }) {
    return Boolean(running && turn_id && turn_id !== this.#lostTurn);
  }

  /** Goes on with an answer that is being written. @param {any} found */
  #join(found) {
    const { last } = this.#exchanges;
    if (last && this.#canJoin(found)) this.#follow(found.turn_id, last);
    else if (found.running) this.#lookAgain(found.id);
  }

  /** Looks from time to time whether an answer that is written elsewhere is whole. @param {string} id */
  #lookAgain(id) {
    const { signal } = this.#leaving;
    const timer = setTimeout(async () => {
      const found = await stored(id, "limit=1", signal).catch(() => null);
      if (signal.aborted) return;
      if (found && !found.running) this.open(id);
      else this.#lookAgain(id);
    }, WATCH);
    signal.addEventListener("abort", () => clearTimeout(timer));
  }

  /**
   * @param {string} id
   * @param {unknown} error
   */
  #notOpened(id, error) {
    this.#exchanges.empty();
    if (error instanceof Refused && error.status === 404) {
      this.#name(null, "");
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
    this.#become("idle");
    return this.#leaving.signal;
  }

  /**
   * @param {string | null} id
   * @param {string} name
   */
  #name(id, name) {
    const other = id !== this.id || name !== this.title;
    this.id = id;
    this.title = name;
    entitle(name);
    if (other || !id) this.#tell("opened", { id, title: name });
  }

  /** @param {State} state */
  #become(state) {
    if (state === this.state) return;
    this.state = state;
    log.setAttribute("aria-busy", String(state !== "idle"));
    this.#tell("state");
  }

  /**
   * @param {"state" | "opened" | "changed" | "compose"} name
   * @param {unknown} [detail]
   */
  #tell(name, detail) {
    this.dispatchEvent(new CustomEvent(name, { detail }));
  }
}

export const conversation = new Conversation();

/** The conversation of the address is opened, now and whenever somebody goes back or forward. */
export function startConversation() {
  startReading();
  window.addEventListener("hashchange", follow);
  others.addEventListener("message", () => conversation.catchUp());
  document.addEventListener("visibilitychange", () => conversation.catchUp());
  follow();
}

function follow() {
  const id = idInAddress();
  if (id === null) conversation.fresh();
  else if (id !== conversation.id) conversation.open(id);
}

/** @param {Exchange} exchange */
function idOf({ question, answer }) {
  return answer.id ?? question.id;
}
