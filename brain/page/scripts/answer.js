// Room: an answer: text, calls and notices in the order in which they came, and how it ended.

import { Card } from "./card.js";
import { modelNamed } from "./choices.js";
import { copy } from "./copying.js";
import { button, make } from "./dom.js";
import { failure } from "./failures.js";
import { paramsIn } from "./params.js";
import { follow, say, urge } from "./reading.js";
import { Stretch } from "./stretch.js";
import { span, t } from "./texts.js";
import { written } from "./written.js";

const QUIET = 300; // ms without anything new until a sign shows that work goes on
const READ_OUT = 400; // characters: a longer answer is told by its length
/** @type {Record<string, Parameters<typeof t>[0]>} */
const ENDINGS = { length: "endedLength", call_limit: "endedCalls", deadline: "endedTime", cancelled: "stopped" };
/** @type {Record<string, Parameters<typeof t>[0]>} */
const FAILURES = {
  model_unreachable: "modelUnreachable", model_failed: "modelFailed", model_context: "modelContext", shutdown: "interrupted",
};

/** One answer, as it is written or as it was kept. */
export class Answer {
  /** @type {string | null} */
  id = null;
  over = false;
  problem = ""; // how it failed, if so
  /** @type {string[]} */
  #said = [];
  /** @type {Map<string, Card>} */
  #cards = new Map();
  /** @type {Stretch | null} */
  #stretch = null;
  /** @type {Text | null} */
  #thought = null;
  #flow = make("div", "flow");
  #meta = make("span", "small meta");
  #foot = make("div", "actions", this.#meta);
  #pulse = make("span", "pulse");
  #timer = 0;
  #frame = 0;
  #model = "";
  #tokens = "";
  #hands;

  /** @param {{ retry: () => void, decide: (call: string, approve: boolean) => Promise<string> }} hands */
  constructor(hands) {
    this.#hands = hands;
    this.#pulse.setAttribute("aria-hidden", "true");
    this.#pulse.hidden = true;
    this.node = make("article", "answer", this.#flow, this.#foot);
    this.node.setAttribute("aria-label", t("brain"));
  }

  get text() {
    return this.#said.join("").trim();
  }

  /** It is asked for; nothing has come yet. */
  wait() {
    this.#foot.prepend(this.#pulse);
    this.#breathe();
    return this;
  }

  /** The names of the events that it shows. */
  get hears() {
    return Object.keys(this.#shown);
  }

  /** @param {import("./following.js").TurnEvent} event */
  show({ name, data, raw }) {
    this.#breathe();
    this.#shown[name]?.(data, raw);
  }

  /** @type {Record<string, (data: any, raw: string) => void>} */
  #shown = {
    turn_start: ({ model }) => { this.#model = model; },
    token: ({ text }) => this.#write(text),
    thinking: ({ text }) => this.#think(text),
    approval_required: (data, raw) => this.#ask(data, raw),
    specialist_start: (data, raw) => {
      this.#card(data.call_id, data.name, raw).start();
      say(t("begins", data));
    },
    specialist_progress: (data) => this.#cards.get(data.call_id)?.progress(data),
    specialist_result: (data, raw) => {
      this.#card(data.call_id, data.name, raw).result(data);
      say(t("ends", data));
    },
    specialist_error: (data, raw) => {
      this.#card(data.call_id, data.name, raw).error(data);
      say(failure(data));
    },
    notice: (data) => this.#notice(data),
    usage: ({ completion_tokens, estimated }) => {
      const amount = t("tokens", { count: completion_tokens });
      this.#tokens = estimated ? t("about", { amount }) : amount;
    },
    error: ({ message, recoverable }) => this.fail(message, recoverable),
    done: (data) => this.#done(data),
  };

  /** @param {string} text */
  #write(text) {
    if (!this.#stretch) {
      text = text.trimStart();
      if (!text) return;
      this.#endText();
      if (!this.#said.length) say(t("writes"));
      else this.#said.push("\n\n");
      this.#stretch = new Stretch();
      this.#flow.append(this.#stretch.node);
    }
    this.#said.push(text);
    this.#stretch.append(text);
  }

  /** @param {string} text */
  #think(text) {
    if (!this.#thought) {
      const thought = document.createTextNode("");
      this.#put(make("details", "thinking", make("summary", "", t("thinking")), make("div", "thoughts", thought)));
      this.#thought = thought;
    }
    this.#thought.appendData(text);
    this.#soonFollow();
  }

  #soonFollow() {
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0;
      follow();
    });
  }

  #endText() {
    this.#stretch?.end();
    this.#stretch = null;
    const summary = this.#thought?.parentElement?.previousElementSibling;
    if (summary) summary.textContent = t("thought");
    this.#thought = null;
  }

  /** @param {HTMLElement} node */
  #put(node) {
    this.#endText();
    this.#flow.append(node);
    follow();
  }

  /**
   * @param {string} id
   * @param {string} name
   * @param {string} raw
   */
  #card(id, name, raw) {
    const known = this.#cards.get(id);
    if (known) return known;
    const card = new Card(name, paramsIn(raw));
    this.#cards.set(id, card);
    this.#put(card.node);
    return card;
  }

  /**
   * @param {any} data
   * @param {string} raw
   */
  #ask(data, raw) {
    this.#card(data.call_id, data.name, raw).ask(data, (approve) => this.#hands.decide(data.call_id, approve));
    urge(t("asksApproval", data));
    follow();
  }

  /** @param {{ code: string, text: string }} notice */
  #notice({ code, text }) {
    if (code === "stand_in") return; // said below the composer, and at the end of each answer
    this.#put(code === "steered" ? steered(text) : make("p", "notice small", text));
  }

  /** @param {any} data */
  #done({ stop_reason, message_id, text, total_ms }) {
    this.id = message_id;
    if (stop_reason in ENDINGS) this.#put(make("p", "notice small", t(ENDINGS[stop_reason])));
    this.#end([span(total_ms), this.#tokens]);
    say(stop_reason === "cancelled" ? t("stopped") : spoken(text));
  }

  /** @param {string[]} facts */
  #end(facts) {
    this.#close();
    const model = modelNamed(this.#model)?.stand_in ? t("isStandIn", { name: this.#model }) : this.#model;
    this.#meta.textContent = [model, ...facts].filter(Boolean).join(" · ");
    if (this.text) this.#foot.append(button(t("copy"), ({ currentTarget }) => copy(/** @type {Element} */ (currentTarget), this.text), { icon: "copy", className: "quiet square copy" }));
    if (!this.node.querySelector(".error button")) {
      this.#foot.append(button(t("retry"), this.#hands.retry, { icon: "retry", className: "quiet square retry" }));
    }
    follow();
  }

  #close() {
    this.over = true;
    this.#endText();
    this.leave();
    this.#pulse.remove();
  }

  /** It is looked at no longer, and goes on elsewhere. */
  leave() {
    for (const card of this.#cards.values()) card.leave();
    clearTimeout(this.#timer);
  }

  /**
   * It ended, and not well.
   * @param {string} text
   * @param {boolean} again whether asking again may help
   */
  fail(text, again) {
    this.problem = text;
    const line = make("div", "error", make("p", "", text));
    line.setAttribute("role", "alert");
    if (again) line.append(button(t("retry"), this.#hands.retry, { icon: "retry", text: true }));
    this.#put(line);
    if (!this.over) this.#end([]);
  }

  /** The sign of life, when nothing has come for a moment and no card shows one. */
  #breathe() {
    this.#pulse.hidden = true;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      this.#pulse.hidden = [...this.#cards.values()].some((card) => card.running);
    }, QUIET);
  }

  /**
   * Shows an answer as it was kept.
   * @param {any} message
   */
  restore({ id, parts, state, stop_reason, error, model }) {
    this.id = id;
    this.#model = model ?? "";
    for (const part of parts) this.#restorePart(part);
    if (state === "running") return this.#elsewhere();
    if (state === "cancelled") this.#put(make("p", "notice small", t("stopped")));
    else if (stop_reason in ENDINGS) this.#put(make("p", "notice small", t(ENDINGS[stop_reason])));
    this.#end([]);
    if (state === "interrupted") this.#failed(t("interrupted"));
    if (state === "error") this.#failed(t(FAILURES[error] ?? "internal"));
    return this;
  }

  /** It is written where its events cannot be read; it will be here when it is whole. */
  #elsewhere() {
    this.#put(make("p", "notice small", t("elsewhere")));
    return this.wait();
  }

  /** @param {string} text */
  #failed(text) {
    this.#foot.querySelector(".retry")?.remove();
    this.fail(text, true);
  }

  /** @param {any} part */
  #restorePart(part) {
    if (part.type === "text" && part.text.trim()) {
      this.#said.push(...(this.#said.length ? ["\n\n"] : []), part.text);
      this.#flow.append(written(part.text));
    } else if (part.type === "steered") this.#flow.append(steered(part.text));
    else if (part.type === "call") this.#flow.append(keptCard(part).node);
  }
}

/** What a person put in while the answer was written. @param {string} text */
function steered(text) {
  return make("div", "steered", make("span", "small", t("addedBy")), make("p", "said", text));
}

/** @param {any} part */
function keptCard({ name, params, outcome, block, citations }) {
  const card = new Card(name, paramsIn(JSON.stringify({ params })));
  const text = inBlock(block ?? "");
  if (outcome) card.error({ code: outcome, reason: text });
  else card.result({ text, citations });
  return card;
}

/** What stands in the block that the model read. @param {string} block */
function inBlock(block) {
  const result = block.match(/^\s*\[SPECIALIST_RESULT: [^\]]*\]\n([^]*)\n\[\/SPECIALIST_RESULT\]\s*$/)?.[1];
  return result ?? block.match(/^\s*\[SPECIALIST_ERROR: .*? failed - ([^]*)\]\s*$/)?.[1] ?? block.trim();
}

/** How the end is told: in full, or by its length. @param {string} text */
function spoken(text) {
  if (text.length <= READ_OUT) return t("answered", { text: text.replace(/\*\*|`|^#+ /gm, "").trim() });
  return t("answeredLong", { count: text.trim().split(/\s+/).length });
}
