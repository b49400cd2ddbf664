// Conversation: which one is open and what happens in it, as all other rooms are told.

import { log } from "../answer/reading.js";
import { entitle } from "./heading.js";

/** @typedef {"idle" | "sending" | "writing" | "stopping"} State */

/** A conversation, or a new one. */
export class Current extends EventTarget {
  /** @type {State} */
  state = "idle";
  /** @type {string | null} */
  id = null;
  #told = false; // whether the others know that this one is open

  /** It is about to be open. @param {string | null} id */
  opens(id) {
    if (id !== this.id) this.#told = false;
    this.id = id;
  }

  /**
   * It is open, and shown. The others are told, unless it was open before.
   * @param {string | null} id
   * @param {string} title
   */
  opened(id, title) {
    this.opens(id);
    entitle(title);
    if (!this.#told) this.tell("opened");
    this.#told = true;
  }

  /**
   * It was given another title, here or elsewhere.
   * @param {string} id
   * @param {string} title
   */
  renamed(id, title) {
    if (id === this.id) entitle(title);
  }

  /** @param {State} state */
  become(state) {
    if (state === this.state) return;
    this.state = state;
    log.setAttribute("aria-busy", String(state !== "idle"));
    this.tell("state");
  }

  /**
   * @param {"state" | "opened" | "changed" | "compose" | "write"} name
   * @param {unknown} [detail]
   */
  tell(name, detail) {
    this.dispatchEvent(new CustomEvent(name, { detail }));
  }
}
