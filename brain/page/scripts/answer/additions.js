// Messages that a person adds while Brain writes an answer.

import { make } from "../base/dom.js";
import { t } from "../base/texts.js";

/**
 * An addition, placed where Brain read it.
 * @param {string} text
 */
export function makeAddition(text) {
  return make("div", "steered", make("span", "small", t("added")), make("p", "message-text", text));
}

/** Brain reads it with the next message. @param {Element} node */
export function markForNextMessage(node) {
  node.firstElementChild?.replaceChildren(t("addedForNext"));
}

/** Additions that Brain has not read yet, below the answer. */
export class PendingAdditions {
  node = make("div", "flow");
  /** @type {{ text: string, node: HTMLElement }[]} */
  #all = [];

  /**
   * @param {string} text
   * @returns {() => void} removes it
   */
  add(text) {
    const one = { text, node: makeAddition(text) };
    one.node.firstElementChild?.replaceChildren(t("addedUnread"));
    this.#all.push(one);
    this.node.append(one.node);
    return () => this.#drop(one);
  }

  /** @param {string} text */
  remove(text) {
    const one = this.#all.find((one) => one.text === text);
    if (one) this.#drop(one);
  }

  /** Removes all additions and returns their text. */
  takeBack() {
    return this.#all.slice().map((one) => this.#drop(one).text).join("\n\n");
  }

  /** @param {{ text: string, node: HTMLElement }} one */
  #drop(one) {
    one.node.remove();
    this.#all = this.#all.filter((other) => other !== one);
    return one;
  }
}
