// A running turn: follow, stop and steer it, and approve its calls.

import { Refused, errorText, request } from "../base/server.js";
import { TurnStream } from "./turn_stream.js";

/**
 * @typedef {object} TurnListener
 * @property {(strategy: string | undefined) => void} started
 * @property {() => void} ended
 * @property {(lost: boolean) => void} lost the connection is lost, or works again
 * @property {() => void} gone its events are no longer available
 */

/** Stops a turn by its id. @param {string} id @returns {Promise<string>} the problem, or an empty text */
export function cancel(id) {
  return request("POST", `v1/turns/${id}/cancel`).then(() => "", errorText);
}

/** One turn and the answer that it writes. */
export class Turn {
  #answer;
  #stream;

  /**
   * @param {string} id
   * @param {import("./answer.js").Answer} answer
   * @param {TurnListener} reader
   */
  constructor(id, answer, { started, ended, lost, gone }) {
    this.id = id;
    this.#answer = answer;
    this.#stream = new TurnStream(id, {
      names: answer.eventNames,
      event: (event) => {
        answer.show(event);
        if (event.name === "turn_start") started(event.data.strategy);
        if (!answer.over) return;
        ended();
        if (answer.hasRounds) this.showTimes();
      },
      lost,
      gone,
    });
  }

  /** Stops following the turn, which continues. */
  leave() {
    this.#stream.close();
    this.#answer.leave();
  }

  /** @returns {Promise<string>} what went wrong, or nothing */
  stop() {
    return this.#post("cancel").then(() => "", errorText);
  }

  /**
   * Adds a message to the answer.
   * @param {string} message
   * @returns {Promise<string | null>} the problem, or an empty text; null if the turn has ended
   */
  steer(message) {
    const takeBack = this.#answer.showAddition(message);
    return this.#post("steer", { message }).then(() => "", (error) => {
      takeBack();
      return error instanceof Refused && [404, 410].includes(error.status) ? null : errorText(error);
    });
  }

  /**
   * Approves or declines a call.
   * @param {string} call
   * @param {boolean} approve
   * @returns {Promise<string>} what went wrong, or nothing
   */
  decide(call, approve) {
    return this.#post(`approvals/${call}`, { approve }).then(() => "", errorText);
  }

  /**
   * @param {string} what
   * @param {object} [how]
   */
  #post(what, how) {
    return this.#stream.prioritize(request("POST", `v1/turns/${this.id}/${what}`, how));
  }

  /** Shows how long the rounds took. The server knows it exactly, and also for rounds before a reload. */
  async showTimes() {
    const rounds = await request("GET", `v1/turns/${this.id}`).then((turn) => turn.rounds, () => null);
    this.#answer.setTimes(rounds ?? []);
  }

  /** The id of the answer, even if it failed. @returns {Promise<string | null>} */
  message() {
    return request("GET", `v1/turns/${this.id}`).then(({ message_id }) => message_id, () => null);
  }
}
