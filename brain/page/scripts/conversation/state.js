// Which conversation is open and what it does now, with events for other modules.

import { log } from "../answer/scrolling.js";
import { setTitle } from "./heading.js";

/** @typedef {"idle" | "sending" | "writing" | "stopping"} State */

/** A conversation, or a new one. */
export class ConversationState extends EventTarget {
  /** @type {State} */
  state = "idle";
  /** @type {string | null} */
  id = null;
  #isAnnounced = false; // whether `opened` was fired for it

  /** It is about to be open. @param {string | null} id */
  opens(id) {
    if (id !== this.id) this.#isAnnounced = false;
    this.id = id;
  }

  /**
   * The conversation is open and visible. Fires `opened`, unless it was open before.
   * @param {string | null} id
   * @param {string} title
   */
  opened(id, title) {
    this.opens(id);
    setTitle(title);
    if (!this.#isAnnounced) this.emit("opened");
    this.#isAnnounced = true;
  }

  /**
   * It was given another title, here or elsewhere.
   * @param {string} id
   * @param {string} title
   */
  renamed(id, title) {
    if (id === this.id) setTitle(title);
  }

  /** @param {State} state */
  setState(state) {
    if (state === this.state) return;
    this.state = state;
    log.setAttribute("aria-busy", String(state !== "idle"));
    this.emit("state");
  }

  /**
   * @param {"state" | "opened" | "changed" | "compose" | "write"} name
   * @param {unknown} [detail]
   */
  emit(name, detail) {
    this.dispatchEvent(new CustomEvent(name, { detail }));
  }
}
