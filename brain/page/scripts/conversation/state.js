// Which conversation is open, and its state, with events for other modules.

import { log } from "../answer/scrolling.js";
import { openAssist } from "../dialogs/assistance.js";
import { setTitle } from "./heading.js";

/** @typedef {"idle" | "sending" | "writing" | "stopping"} State */

/** The open conversation; it has no id until its first message is sent. */
export class ConversationState extends EventTarget {
  /** @type {State} */
  state = "idle";
  /** @type {string | null} */
  id = null;
  #isAnnounced = false; // whether `opened` was fired for this id

  /** The conversation starts to open. @param {string | null} id */
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
    openAssist(id);
    setTitle(title);
    if (!this.#isAnnounced) this.emit("opened");
    this.#isAnnounced = true;
  }

  /**
   * A conversation has a new title.
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
