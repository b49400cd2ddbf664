// Answer: the signs that an answer goes on while nothing new of it comes.

import { say } from "../ground/announcing.js";
import { make } from "../ground/dom.js";
import { t } from "../ground/texts.js";

const QUIET = 300; // ms without anything new until a sign shows that work goes on
const LONG = 6000; // and until a word says what one waits for

/** Those of one answer. */
export class Waiting {
  #pulse = make("span", "pulse");
  #words = make("span", "small");
  #timers = [0, 0];
  #works;
  node = make("span", "signs", this.#pulse, this.#words);

  /** @param {() => boolean} works whether something else shows that work goes on */
  constructor(works) {
    this.#works = works;
    this.#pulse.setAttribute("aria-hidden", "true");
    this.#pulse.hidden = true;
  }

  /** Something new came. */
  again() {
    this.#pulse.hidden = true;
    this.#words.textContent = "";
    this.leave();
    const pulse = () => { this.#pulse.hidden = this.#works(); };
    this.#timers = [setTimeout(pulse, QUIET), setTimeout(() => this.#tell(), LONG)];
  }

  /** Shows what is waited for. @param {string} words */
  tell(words) {
    this.#pulse.hidden = false;
    this.#words.textContent = words;
  }

  #tell() {
    if (this.#works()) return;
    this.#words.textContent ||= t("waits");
    say(this.#words.textContent);
  }

  /** Nobody looks any more. */
  leave() {
    this.#timers.forEach(clearTimeout);
  }

  /** Nothing more will come. */
  end() {
    this.leave();
    this.node.remove();
  }
}
