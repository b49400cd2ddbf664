// Answer: what a person puts into an answer while it is written.

import { make } from "../ground/dom.js";
import { t } from "../ground/texts.js";

/**
 * It stands where it was taken.
 * @param {string} text
 */
export function steered(text) {
  return make("div", "steered", make("span", "small", t("addedBy")), make("p", "said", text));
}

/** It was taken when the answer was over. @param {Element} node */
export function readLater(node) {
  node.firstElementChild?.replaceChildren(t("readLater"));
}

/** What was put in and not yet taken, below the answer. */
export class Unread {
  node = make("div", "flow");
  /** @type {{ text: string, node: HTMLElement }[]} */
  #all = [];

  /**
   * @param {string} text
   * @returns {() => void} takes it back
   */
  add(text) {
    const one = { text, node: steered(text) };
    one.node.firstElementChild?.replaceChildren(t("putIn"));
    this.#all.push(one);
    this.node.append(one.node);
    return () => this.#drop(one);
  }

  /** @param {string} text */
  taken(text) {
    const one = this.#all.find((one) => one.text === text);
    if (one) this.#drop(one);
  }

  /** All of it, which is shown no longer. */
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
