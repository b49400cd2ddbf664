// Room: the open conversation: what is asked in it, and the turn that answers.

import { Answer } from "./answer.js";
import { begin, bodyOf } from "./asking.js";
import { button, find, make } from "./dom.js";
import { makeEmpty } from "./empty.js";
import { Following } from "./following.js";
import { Question } from "./question.js";
import { keepingPlace, log, startReading, toEnd } from "./reading.js";
import { Refused, request, told } from "./server.js";
import { filesOf, pairs, textOf } from "./stored.js";
import { t } from "./texts.js";

/**
 * @typedef {import("./types.js").Attached} Attached
 * @typedef {{ question: Question, answer: Answer }} Exchange
 * @typedef {"idle" | "sending" | "writing" | "stopping"} State
 */

const PAIRS = 100; // questions with their answers that are opened at once
const WATCH = 2000; // ms between two looks at an answer that can only be read when it is whole
const SLOW = 300; // ms until it is said that something takes time

const title = find("title", HTMLElement), banner = find("banner", HTMLElement);

class Conversation extends EventTarget {
  /** @type {State} */
  state = "idle";
  /** @type {string | null} */
  id = null;
  title = "";
  /** @type {Exchange[]} */
  #exchanges = [];
  /** @type {Following | null} */
  #following = null;
  /** @type {string | null} */
  #turn = null;
  /** @type {string | null} */
  #lostTurn = null; // whose events are no longer there from the first on
  /** @type {{ what: string, key: string } | null} */
  #unsent = null; // the last question that did not arrive, as far as is known here
  #leaving = new AbortController();
  #sending = new AbortController();

  /**
   * Asks. What could not be sent is given back.
   * @param {string} message
   * @param {Attached[]} files
   * @param {string | null} [replaces] the id of an earlier question or answer, which goes with all that follows it
   */
  async send(message, files, replaces = null) {
    if (this.state !== "idle") return;
    const place = replaces ? this.#exchanges.findIndex((one) => [one.question.id, one.answer.id].includes(replaces)) : -1;
    const problem = await this.#ask(message, files, replaces, place);
    if (problem) this.#tell("compose", { message, files, replaces });
  }

  /** Asks the last question again. */
  async retry() {
    const last = this.#exchanges.at(-1);
    if (this.state !== "idle" || !last) return;
    await this.#ask(last.question.text, last.question.files, idOf(last), this.#exchanges.length - 1);
  }

  /** Ends the turn that is written, or gives up sending. */
  async stop() {
    if (this.state === "sending") this.#sending.abort();
    if (this.state !== "writing") return;
    this.#become("stopping");
    try {
      await request("POST", `v1/turns/${this.#turn}/cancel`);
    } catch (error) {
      this.#complain(told(error));
      if (this.#turn) this.#become("writing");
    }
  }

  /**
   * Adds something to the answer that is written.
   * @param {string} message
   * @returns {Promise<boolean>} whether it was taken
   */
  async steer(message) {
    if (!this.#turn) return false;
    try {
      await request("POST", `v1/turns/${this.#turn}/steer`, { message });
      return true;
    } catch (error) {
      const over = error instanceof Refused && [404, 410].includes(error.status);
      if (!over) this.#complain(told(error));
      return false;
    }
  }

  /** Leaves this conversation for a new one. */
  async fresh() {
    this.#leave();
    if (location.hash) history.pushState(null, "", location.pathname + location.search);
    log.replaceChildren(makeEmpty((question) => this.send(question, [])));
    this.#name(null, "");
  }

  /**
   * Opens a conversation, at its end.
   * @param {string} id
   */
  async open(id) {
    const signal = this.#leave();
    if (location.hash !== addressOf(id)) history.pushState(null, "", addressOf(id));
    this.id = id;
    const slow = setTimeout(() => log.replaceChildren(make("p", "opening small", t("opening"))), SLOW);
    try {
      const found = await this.#stored(`limit=${PAIRS}`, signal);
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
    const signal = this.#leaving.signal, last = this.#exchanges.at(-1)?.answer.id;
    if (this.state !== "idle" || !last || document.hidden) return;
    const found = await this.#stored("limit=2", signal).catch(() => null);
    if (!found || signal.aborted || this.state !== "idle") return;
    this.renamed(found.id, found.title);
    const newest = pairs(found).at(-1), before = pairs(found).at(-2);
    if (newest?.answer.id === last) return;
    if (before?.answer.id === last) this.#append(found);
    else await this.open(found.id);
  }

  /**
   * @param {string} query
   * @param {AbortSignal} signal
   */
  #stored(query, signal) {
    return request("GET", `v1/conversations/${encodeURIComponent(this.id ?? "")}?${query}`, undefined, signal);
  }

  /**
   * @param {string} message
   * @param {Attached[]} files
   * @param {string | null} replaces
   * @param {number} place of the first exchange that goes; -1 for none
   * @returns {Promise<boolean>} whether it could not be sent
   */
  async #ask(message, files, replaces, place) {
    const left = this.#leaving.signal, { signal } = (this.#sending = new AbortController());
    const gone = place < 0 ? [] : this.#exchanges.splice(place);
    for (const node of nodesOf(gone)) node.remove();
    const exchange = this.#add(message, files);
    this.#become("sending");
    const key = this.#keyOf(message, replaces);
    try {
      const body = bodyOf({ message, files, conversation: this.id, replaces, key });
      const begun = await begin(body, signal, () => this.#warn(t("sendsAgain")));
      this.#unsent = null;
      if (!left.aborted) this.#begun(exchange, begun);
      this.#tell("changed");
      return false;
    } catch (error) {
      if (!left.aborted) this.#takeBack(exchange, gone, error);
      return true;
    } finally {
      if (!left.aborted) this.#warn("");
    }
  }

  /** A question that is sent again because nobody knows whether it arrived begins no second turn. @param {...unknown} asked */
  #keyOf(...asked) {
    const what = JSON.stringify([this.id, ...asked]);
    if (this.#unsent?.what !== what) this.#unsent = { what, key: crypto.getRandomValues(new Uint32Array(4)).join("-") };
    return this.#unsent.key;
  }

  /**
   * @param {string} message
   * @param {Attached[]} files
   */
  #add(message, files) {
    this.#clear();
    const exchange = this.#exchange({ text: message, files }, this.#answer().wait());
    log.append(...nodesOf([exchange]));
    toEnd();
    return exchange;
  }

  /** @returns {Answer} */
  #answer() {
    return new Answer({
      retry: () => this.retry(),
      decide: (call, approve) => this.#decide(call, approve),
    });
  }

  /**
   * @param {import("./question.js").Asked} asked
   * @param {Answer} answer
   */
  #exchange(asked, answer) {
    const exchange = { answer, question: new Question(asked, () => this.#edit(exchange)) };
    this.#exchanges.push(exchange);
    return exchange;
  }

  /** @param {Exchange} exchange */
  #edit(exchange) {
    const { text, files } = exchange.question;
    if (this.state === "idle") this.#tell("compose", { message: text, files, replaces: idOf(exchange) });
  }

  /**
   * @param {string} call
   * @param {boolean} approve
   * @returns {Promise<string>}
   */
  async #decide(call, approve) {
    return request("POST", `v1/turns/${this.#turn}/approvals/${call}`, { approve }).then(() => "", told);
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

  /**
   * @param {Exchange} exchange
   * @param {Exchange[]} gone
   * @param {unknown} error
   */
  #takeBack(exchange, gone, error) {
    for (const node of nodesOf([exchange])) node.remove();
    this.#exchanges = [...this.#exchanges.filter((one) => one !== exchange), ...gone];
    log.append(...nodesOf(gone));
    if (!this.#exchanges.length) log.replaceChildren(makeEmpty((question) => this.send(question, [])));
    this.#become("idle");
    if (!this.#sending.signal.aborted) this.#complain(told(error));
    toEnd();
    if (error instanceof Refused && error.code === "busy") this.catchUp();
  }

  /**
   * @param {string} turn
   * @param {Exchange} exchange
   */
  #follow(turn, exchange) {
    this.#turn = turn;
    this.#following = new Following(turn, {
      event: (event) => {
        exchange.answer.show(event);
        if (exchange.answer.over) this.#ended(turn, exchange);
      },
      lost: (lost) => this.#warn(lost ? t("lost") : ""),
      gone: () => this.#gone(turn, exchange),
    });
    this.#become("writing");
  }

  /**
   * @param {string} turn
   * @param {Exchange} exchange
   */
  async #ended(turn, exchange) {
    const { signal } = this.#leaving;
    this.#turn = this.#following = null;
    this.#become("idle");
    exchange.answer.id ??= await request("GET", `v1/turns/${turn}`, undefined, signal).then((told) => told.message_id, () => null);
    this.#tell("changed");
  }

  /**
   * The events are gone, as behind a restart of the server; what was kept of the answer is shown.
   * @param {string} turn
   * @param {Exchange} exchange
   */
  async #gone(turn, exchange) {
    const { signal } = this.#leaving;
    this.#lostTurn = turn;
    const found = await this.#stored(`limit=${PAIRS}`, signal).catch(() => null);
    if (signal.aborted) return;
    this.#leave();
    if (found) this.#show(found);
    else exchange.answer.fail(t("cut"), true);
    this.#tell("changed");
  }

  /** @param {any} found */
  #show(found) {
    this.#exchanges = [];
    for (const pair of pairs(found)) this.#restored(found, pair);
    log.replaceChildren(...this.#earlier(found), ...nodesOf(this.#exchanges));
    this.#name(found.id, found.title);
    toEnd();
    this.#join(found);
  }

  /** @param {any} found */
  #append(found) {
    this.#clear();
    const pair = pairs(found).at(-1);
    if (pair) log.append(...nodesOf([this.#restored(found, pair)]));
    this.#join(found);
  }

  /**
   * @param {any} found
   * @param {import("./stored.js").Pair} pair
   */
  #restored(found, { question, answer }) {
    const { id, time } = question, joined = answer.state === "running" && this.#canJoin(found);
    const asked = { id, time, text: textOf(question), files: filesOf(found, question) };
    return this.#exchange(asked, joined ? this.#answer().wait() : this.#answer().restore(answer));
  }

  /** @param {any} found */
  #canJoin({ running, turn_id }) {
    return Boolean(running && turn_id && turn_id !== this.#lostTurn);
  }

  /** Goes on with an answer that is being written. @param {any} found */
  #join(found) {
    const last = this.#exchanges.at(-1);
    if (last && this.#canJoin(found)) this.#follow(found.turn_id, last);
    else if (found.running) this.#lookAgain();
  }

  #lookAgain() {
    const { signal } = this.#leaving, id = this.id;
    const timer = setTimeout(() => {
      if (id) this.open(id);
    }, WATCH);
    signal.addEventListener("abort", () => clearTimeout(timer));
  }

  /** @param {{ earlier: string | null }} found */
  #earlier({ earlier }) {
    if (!earlier) return [];
    const { signal } = this.#leaving;
    const more = button(t("earlier"), async () => {
      more.disabled = true;
      const found = await this.#stored(`limit=${PAIRS}&before=${earlier}`, signal).catch(() => null);
      more.disabled = false;
      if (found && !signal.aborted) this.#prepend(found, more);
    }, { className: "earlier" });
    return [more];
  }

  /**
   * @param {any} found
   * @param {HTMLElement} more
   */
  #prepend(found, more) {
    const newer = this.#exchanges;
    this.#exchanges = [];
    const older = pairs(found).map((pair) => this.#restored(found, pair));
    this.#exchanges = [...older, ...newer];
    keepingPlace(() => more.replaceWith(...this.#earlier(found), ...nodesOf(older)));
  }

  /**
   * @param {string} id
   * @param {unknown} error
   */
  #notOpened(id, error) {
    const unknown = error instanceof Refused && error.status === 404;
    log.replaceChildren();
    this.#name(unknown ? null : id, "");
    this.#complain(unknown ? t("noConversation") : told(error), unknown
      ? button(t("fresh"), () => this.fresh()) : button(t("retry"), () => this.open(id), { icon: "retry", text: true }));
  }

  /**
   * Says below the messages what did not work, until something else is done.
   * @param {string} text
   * @param {...Node} remedies
   */
  #complain(text, ...remedies) {
    log.querySelector(".complaint")?.remove();
    const line = make("div", "error complaint", make("p", "", text), ...remedies);
    line.setAttribute("role", "alert");
    log.append(line);
    toEnd();
  }

  #clear() {
    for (const node of log.querySelectorAll(".complaint, .empty, .opening")) node.remove();
  }

  /** @param {string} text */
  #warn(text) {
    banner.textContent = text;
    banner.hidden = !text;
  }

  /** Lets go of what is open. What is asked or written goes on in the server. */
  #leave() {
    this.#leaving.abort();
    this.#leaving = new AbortController();
    this.#following?.close();
    this.#following = this.#turn = null;
    this.#exchanges = [];
    this.#warn("");
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
    title.textContent = name || t("brain");
    document.title = name ? `${name} · ${t("brain")}` : t("brain");
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
  window.addEventListener("hashchange", follows);
  new BroadcastChannel("brain").onmessage = () => conversation.catchUp();
  document.addEventListener("visibilitychange", () => conversation.catchUp());
  follows();
}

function follows() {
  const id = idIn(location.hash);
  if (id === null) conversation.fresh();
  else if (id !== conversation.id) conversation.open(id);
}

/** @param {string} hash */
function idIn(hash) {
  const found = hash.match(/^#\/c\/(.+)$/)?.[1];
  return found && URL.canParse(`x:${found}`) ? decodeURIComponent(found) : null;
}

/** @param {string} id */
function addressOf(id) {
  return `#/c/${encodeURIComponent(id)}`;
}

/** @param {Exchange} exchange */
function idOf({ question, answer }) {
  return answer.id ?? question.id;
}

/** @param {Exchange[]} exchanges */
function nodesOf(exchanges) {
  return exchanges.flatMap(({ question, answer }) => [question.node, answer.node]);
}
