// Signs of life while an answer goes on without new content.

import { announce } from "../base/announcements.js";
import { make } from "../base/dom.js";
import { t } from "../base/texts.js";

const QUIET = 300; // ms without anything new until a sign shows that work goes on
const LONG = 6000; // ms until a text says what the page waits for

/** The signs of one answer. */
export class Waiting {
  #pulse = make("span", "pulse");
  #words = make("span", "small");
  #timers = [0, 0];
  #works;
  node = make("span", "signs", this.#pulse, this.#words);

  /** @param {() => boolean} works whether a running card shows progress already */
  constructor(works) {
    this.#works = works;
    this.#pulse.setAttribute("aria-hidden", "true");
    this.#pulse.hidden = true;
  }

  /** New content came: hides the signs, and starts to wait again. */
  restart() {
    this.#pulse.hidden = true;
    this.#words.textContent = "";
    this.leave();
    const pulse = () => { this.#pulse.hidden = this.#works(); };
    this.#timers = [setTimeout(pulse, QUIET), setTimeout(() => this.#showReason(), LONG)];
  }

  /** Shows what is waited for. @param {string} words */
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
