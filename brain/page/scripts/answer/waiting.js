// Signs of life while an answer has no new content.

import { announce } from "../base/announcements.js";
import { make } from "../base/dom.js";
import { t } from "../base/texts.js";

const QUIET = 300; // ms without new content until a pulse shows
const LONG = 6000; // ms until a text explains the wait

/** The signs of one answer. */
export class Waiting {
  #pulse = make("span", "pulse");
  #words = make("span", "small");
  #timers = [0, 0];
  #works;
  node = make("span", "signs", this.#pulse, this.#words);

  /** @param {() => boolean} works whether a running card already shows activity */
  constructor(works) {
    this.#works = works;
    this.#pulse.setAttribute("aria-hidden", "true");
    this.#pulse.hidden = true;
  }

  /** Hides the signs after new content, and starts to wait again. */
  restart() {
    this.#pulse.hidden = true;
    this.#words.textContent = "";
    this.leave();
    const pulse = () => { this.#pulse.hidden = this.#works(); };
    this.#timers = [setTimeout(pulse, QUIET), setTimeout(() => this.#showReason(), LONG)];
  }

  /** Shows the reason for the wait. @param {string} words */
  show(words) {
    this.#pulse.hidden = false;
    this.#words.textContent = words;
  }

  #showReason() {
    if (this.#works()) return;
    this.#words.textContent ||= t("waiting");
    announce(this.#words.textContent);
  }

  /** Stops the timers. */
  leave() {
    this.#timers.forEach(clearTimeout);
  }

  /** The answer ended. */
  end() {
    this.leave();
    this.node.remove();
  }
}
