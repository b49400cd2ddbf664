// Answer: following a turn. Its events come once each and in order, through cut networks, sleep and restarts.

import { Refused, request } from "../ground/server.js";

const LOST_AFTER = 1200; // ms without a connection until it is worth a word
const AGAIN = [500, 1000, 2000, 4000]; // ms until the next attempt; the last one from then on
const ASLEEP = 20_000; // ms that a clock missed: the machine slept, and its connection may be dead without knowing
const UNSEEN = 5000; // ms after which a tab that nobody sees lets its connection go: all tabs together have but six
const WAITS = 1000; // ms that a request waits for one before the tab lets its own go
const GONE = [404, 410];

/**
 * @typedef {keyof import("../ground/types.js").Events} Name
 * @typedef {object} Reader
 * @property {Name[]} names of the events that it wants
 * @property {(event: import("../ground/types.js").TurnEvent) => void} event
 * @property {(lost: boolean) => void} lost the connection is lost, or found again
 * @property {() => void} gone the server knows nothing of the turn, or not all that is missing here
 */

/** One turn, read to its end. */
export class Following {
  #turn;
  #reader;
  #after = 0;
  /** @type {EventSource | null} */
  #source = null;
  #attempts = 0;
  #timer = 0;
  #lostTimer = 0;
  #lost = false;
  #resting = false; // without a connection until somebody looks again
  #unseen = 0;
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
    document.addEventListener("visibilitychange", () => this.#look(), { signal });
    this.#connect();
    this.#look();
  }

  /** Reads no further. The turn goes on. */
  close() {
    this.#closing.abort();
    this.#rest();
    clearTimeout(this.#unseen);
  }

  /**
   * Lets a request go first, which other tabs with all their connections may hold up.
   * @template T
   * @param {Promise<T>} asked
   * @returns {Promise<T>}
   */
  async behind(asked) {
    const waiting = setTimeout(() => this.#rest(), WAITS);
    try {
      return await asked;
    } finally {
      clearTimeout(waiting);
      this.#look();
    }
  }

  #look() {
    clearTimeout(this.#unseen);
    if (this.#closing.signal.aborted) return;
    if (document.hidden) this.#unseen = setTimeout(() => this.#rest(), UNSEEN);
    else if (this.#resting) this.#connect();
  }

  #rest() {
    this.#resting = true;
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
    this.#resting = false;
    clearTimeout(this.#timer);
    const source = this.#source = new EventSource(this.#address);
    source.onopen = () => this.#found();
    for (const name of this.#reader.names) source.addEventListener(name, (event) => this.#take(name, event));
    source.addEventListener("error", (event) => {
      if (!("data" in event)) this.#cut(source);
    });
  }

  /**
   * @param {Name} name
   * @param {Event} event
   */
  #take(name, event) {
    if (!(event instanceof MessageEvent)) return;
    const number = Number(event.lastEventId.split(".")[1]);
    if (number <= this.#after) return;
    this.#after = number;
    const last = name === "done" || name === "error";
    if (last) this.close();
    this.#reader.event({ name, data: JSON.parse(event.data), raw: event.data });
  }

  #found() {
    this.#attempts = 0;
    clearTimeout(this.#lostTimer);
    this.#lostTimer = 0;
    if (this.#lost) this.#tell(false);
  }

  /**
   * The browser comes back by itself from a cut connection, but not from an answer that is no stream.
   * @param {EventSource} source
   */
  #cut(source) {
    this.#lostTimer ||= setTimeout(() => this.#tell(true), LOST_AFTER);
    if (source.readyState === EventSource.CLOSED) this.#ask();
  }

  /** @param {boolean} lost */
  #tell(lost) {
    this.#lost = lost;
    this.#reader.lost(lost);
  }

  /** Whether there is anything to come back to. */
  async #ask() {
    const known = await this.#known();
    if (this.#closing.signal.aborted || this.#resting) return;
    if (known === false) {
      this.close();
      this.#reader.gone();
    } else {
      this.#timer = setTimeout(() => this.#connect(), AGAIN[Math.min(this.#attempts++, AGAIN.length - 1)]);
    }
  }

  /** @returns {Promise<boolean | null>} null when nobody could say */
  async #known() {
    try {
      await request("GET", `v1/turns/${this.#turn}`, undefined, this.#closing);
    } catch (error) {
      if (!(error instanceof Refused)) return null;
      if (error.status === 401) this.#wait();
      return GONE.includes(error.status) ? false : null;
    }
    return this.#attempts < AGAIN.length && this.#told();
  }

  /** Who does not want to sign in now is not asked again and again. */
  #wait() {
    this.#rest();
    this.#tell(true);
  }

  /** Whether what is missing here can still be had. @returns {Promise<boolean | null>} */
  async #told() {
    const looking = new AbortController(), signal = AbortSignal.any([looking.signal, this.#closing.signal]);
    const answer = await fetch(this.#address, { signal }).catch(() => null);
    looking.abort();
    return answer && answer.status !== 410;
  }
}

/**
 * Calls when the network came back, or the machine has slept.
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
