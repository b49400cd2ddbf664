// Answer: the turn that writes an answer: followed to its end, stopped, steered, approved.

import { Refused, request, told } from "../ground/server.js";
import { Following } from "./following.js";

/**
 * @typedef {object} Told
 * @property {() => void} ended
 * @property {(lost: boolean) => void} lost the connection is lost, or found again
 * @property {() => void} gone its events are no longer there
 */

/** Ends a turn that nobody follows. @param {string} id @returns {Promise<string>} what went wrong, or nothing */
export function cancel(id) {
  return request("POST", `v1/turns/${id}/cancel`).then(() => "", told);
}

/** One turn, with the answer that it writes. */
export class Turn {
  #answer;
  #following;

  /**
   * @param {string} id
   * @param {import("./answer.js").Answer} answer
   * @param {Told} reader
   */
  constructor(id, answer, { ended, lost, gone }) {
    this.id = id;
    this.#answer = answer;
    this.#following = new Following(id, {
      names: answer.hears,
      event: (event) => {
        answer.show(event);
        if (answer.over) ended();
      },
      lost,
      gone,
    });
  }

  /** Follows it no further. It goes on. */
  leave() {
    this.#following.close();
    this.#answer.leave();
  }

  /** @returns {Promise<string>} what went wrong, or nothing */
  stop() {
    return this.#say("cancel").then(() => "", told);
  }

  /**
   * Puts a message in.
   * @param {string} message
   * @returns {Promise<string | null>} what went wrong, or nothing; null when it was over before
   */
  steer(message) {
    const takeBack = this.#answer.putIn(message);
    return this.#say("steer", { message }).then(() => "", (error) => {
      takeBack();
      return error instanceof Refused && [404, 410].includes(error.status) ? null : told(error);
    });
  }

  /**
   * Says whether a call may run.
   * @param {string} call
   * @param {boolean} approve
   * @returns {Promise<string>} what went wrong, or nothing
   */
  decide(call, approve) {
    return this.#say(`approvals/${call}`, { approve }).then(() => "", told);
  }

  /**
   * @param {string} what
   * @param {object} [how]
   */
  #say(what, how) {
    return this.#following.behind(request("POST", `v1/turns/${this.id}/${what}`, how));
  }

  /** The id of the answer, also of one that failed. @returns {Promise<string | null>} */
  message() {
    return request("GET", `v1/turns/${this.id}`).then(({ message_id }) => message_id, () => null);
  }
}
