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
  title = "";

  /**
   * @param {string | null} id
   * @param {string} name
   */
  call(id, name) {
    const other = id !== this.id || name !== this.title;
    this.id = id;
    this.title = name;
    entitle(name);
    if (other || !id) this.tell("opened", { id, title: name });
  }

  /**
   * It was given another title, here or elsewhere.
   * @param {string} id
   * @param {string} name
   */
  renamed(id, name) {
    if (id === this.id) this.call(id, name);
  }

  /** @param {State} state */
  become(state) {
    if (state === this.state) return;
    this.state = state;
    log.setAttribute("aria-busy", String(state !== "idle"));
    this.tell("state");
  }

  /**
   * @param {"state" | "opened" | "changed" | "compose"} name
   * @param {unknown} [detail]
   */
  tell(name, detail) {
    this.dispatchEvent(new CustomEvent(name, { detail }));
  }
}
