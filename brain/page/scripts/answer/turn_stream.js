// The events of one turn: each once and in order, through lost connections, sleep and server restarts.

import { Refused, request } from "../base/server.js";

const LOST_AFTER = 1200; // ms without a connection until the page shows a warning
const AGAIN = [500, 1000, 2000, 4000]; // ms until the next attempt; the last value repeats
const ASLEEP = 20_000; // ms that a timer missed: the device slept, and the connection may be dead
const UNSEEN = 5000; // ms until a hidden tab closes its connection, since all tabs together have six
const WAITS = 1000; // ms that a request waits until the tab closes its connection for it
const GONE = [404, 410];

/**
 * @typedef {keyof import("../base/types.js").Events} Name
 * @typedef {object} Reader
 * @property {Name[]} names of the events to receive
 * @property {(event: import("../base/types.js").TurnEvent) => void} event
 * @property {(lost: boolean) => void} lost the connection is lost, or works again
 * @property {() => void} gone the turn or its missing events are no longer available
 */

/** One turn, read to its end. */
export class TurnStream {
  #turn;
  #reader;
  #after = 0;
  /** @type {EventSource | null} */
  #source = null;
  #attempts = 0;
  #timer = 0;
  #lostTimer = 0;
  #isLost = false;
  #isPaused = false; // has no connection until the tab is visible
  #hiddenTimer = 0;
  #closing = new AbortController();

  /**
   * @param {string} turn
   * @param {Reader} reader
   */
  constructor(turn, reader) {
    this.#turn = turn;
    this.#reader = reader;
    const { signal } = this.#closing;
    whenAwake(() => { if (!document.hidden) this.#connect(); }, signal);
    document.addEventListener("visibilitychange", () => this.#onVisibility(), { signal });
    this.#connect();
    this.#onVisibility();
  }

  /** Stops reading. The turn continues. */
  close() {
    this.#closing.abort();
    this.#pause();
    clearTimeout(this.#hiddenTimer);
  }

  /**
   * Closes the connection for a request that waits because all tabs together have too many.
   * @template T
   * @param {Promise<T>} request
   * @returns {Promise<T>}
   */
  async prioritize(request) {
    const waiting = setTimeout(() => this.#pause(), WAITS);
    try {
      return await request;
    } finally {
      clearTimeout(waiting);
      this.#onVisibility();
    }
  }

  #onVisibility() {
    clearTimeout(this.#hiddenTimer);
    if (this.#closing.signal.aborted) return;
    if (document.hidden) this.#hiddenTimer = setTimeout(() => this.#pause(), UNSEEN);
    else if (this.#isPaused) this.#connect();
  }

  #pause() {
    this.#isPaused = true;
    this.#source?.close();
    clearTimeout(this.#timer);
    clearTimeout(this.#lostTimer);
    this.#lostTimer = 0;
  }

  get #address() {
    return `v1/turns/${this.#turn}/events?after=${this.#after}`;
  }

  #connect() {
    this.#source?.close();
    this.#isPaused = false;
    clearTimeout(this.#timer);
    const source = this.#source = new EventSource(this.#address);
    source.onopen = () => this.#onOpen();
    for (const name of this.#reader.names) source.addEventListener(name, (event) => this.#receive(name, event));
    source.addEventListener("error", (event) => {
      if (!("data" in event)) this.#onError(source);
    });
  }

  /**
   * @param {Name} name
   * @param {Event} event
   */
  #receive(name, event) {
    if (!(event instanceof MessageEvent)) return;
    const number = Number(event.lastEventId.split(".")[1]);
    if (number <= this.#after) return;
    this.#after = number;
    const last = name === "done" || name === "error";
    if (last) this.close();
    this.#reader.event({ name, data: JSON.parse(event.data), raw: event.data, number });
  }

  #onOpen() {
    this.#attempts = 0;
    clearTimeout(this.#lostTimer);
    this.#lostTimer = 0;
    if (this.#isLost) this.#setLost(false);
  }

  /**
   * The browser reconnects automatically, except after a response that is not a stream.
   * @param {EventSource} source
   */
  #onError(source) {
    this.#lostTimer ||= setTimeout(() => this.#setLost(true), LOST_AFTER);
    if (source.readyState === EventSource.CLOSED) this.#checkTurn();
  }

  /** @param {boolean} lost */
  #setLost(lost) {
    this.#isLost = lost;
    this.#reader.lost(lost);
  }

  /** Reconnects if the server still knows the turn. */
  async #checkTurn() {
    const isKnown = await this.#isKnown();
    if (this.#closing.signal.aborted || this.#isPaused) return;
    if (isKnown === false) {
      this.close();
      this.#reader.gone();
    } else {
      this.#timer = setTimeout(() => this.#connect(), AGAIN[Math.min(this.#attempts++, AGAIN.length - 1)]);
    }
  }

  /** @returns {Promise<boolean | null>} null if that is unknown */
  async #isKnown() {
    try {
      await request("GET", `v1/turns/${this.#turn}`, undefined, this.#closing);
    } catch (error) {
      if (!(error instanceof Refused)) return null;
      if (error.status === 401) this.#pauseUntilSignIn();
      return GONE.includes(error.status) ? false : null;
    }
    return this.#attempts < AGAIN.length && this.#isReplayable();
  }

  /** Waits until the tab is shown again, so that the sign-in dialog does not reopen at once. */
  #pauseUntilSignIn() {
    this.#pause();
    this.#setLost(true);
  }

  /** Whether the server still has the missing events. @returns {Promise<boolean | null>} */
  async #isReplayable() {
    const looking = new AbortController(), signal = AbortSignal.any([looking.signal, this.#closing.signal]);
    const answer = await fetch(this.#address, { signal }).catch(() => null);
    looking.abort();
    return answer && answer.status !== 410;
  }
}

/**
 * Calls a function when the network is back or after the device slept.
 * @param {() => void} act
 * @param {AbortSignal} signal
 */
function whenAwake(act, signal) {
  let seen = Date.now();
  const clock = setInterval(() => {
    const missed = Date.now() - seen > ASLEEP;
    seen = Date.now();
    if (missed) act();
  }, 5000);
  signal.addEventListener("abort", () => clearInterval(clock));
  window.addEventListener("online", act, { signal });
  window.addEventListener("pageshow", (event) => { if (event.persisted) act(); }, { signal });
}
