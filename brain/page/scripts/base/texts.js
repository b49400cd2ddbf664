// Texts, numbers and dates in the language of the page.

import { sharedStorage } from "./storage.js";

/**
 * @typedef {typeof import("../../texts/en.json")} Texts
 * @typedef {keyof Texts["page"]} Key
 * @typedef {Partial<Record<Intl.LDMLPluralRule, string>> & { other: string }} Forms
 * @typedef {Record<string, { what: string, remedy: string } | undefined>} Explanations
 */

const FEW = 3;
const TECHNICAL = ["malformed", "oversized", "forged", "invalid_params"]; // calls whose reasons are about their syntax
const REJECTED = ["bad_request", "too_large"]; // errors whose reason only the server knows, in English
const DETAILED = [...REJECTED, "unavailable", "model_unreachable", "model_failed", "model_context"]; // it says more

const { lang, dataset } = document.documentElement, language = lang.split("-")[0];
export const isEnglish = language === "en";
const locale = navigator.languages.find((name) => name.split("-")[0] === language) ?? lang; // for numbers and dates
const plurals = new Intl.PluralRules(locale);
const numbers = new Intl.NumberFormat(locale);
const lists = new Intl.ListFormat(locale);
const seconds = new Intl.NumberFormat(locale, { minimumFractionDigits: 1, maximumFractionDigits: 1 });
const costs = new Intl.NumberFormat(locale, { minimumFractionDigits: 4, maximumFractionDigits: 4 });
const tenths = new Intl.NumberFormat(locale, { maximumFractionDigits: 1 });

/** @type {Texts} */
const texts = await fetch(new URL(`../../texts/${language}.json`, import.meta.url)).then((file) => file.json());

/** The languages of the page with their own names. @returns {[tag: string, name: string][]} */
export function languages() {
  return (dataset.languages ?? "").split(" ").map((tag) => {
    const name = new Intl.DisplayNames(tag, { type: "language" }).of(tag) ?? tag;
    return [tag, name.charAt(0).toLocaleUpperCase(tag) + name.slice(1)];
  });
}

/** The chosen language; empty for that of the browser. */
export const chosenLanguage = () => sharedStorage.get("language") ?? "";

/** Reloads the page in another language. @param {string} tag empty for the language of the browser */
export function chooseLanguage(tag) {
  sharedStorage.put("language", tag || null);
  location.reload();
}

/**
 * A text with its placeholders filled: `{name}` by `values.name`. `values.count` chooses among plural forms.
 * @param {Key} key
 * @param {Record<string, string | number>} [values]
 */
export function t(key, values = {}) {
  /** @type {string | Forms} */
  const found = texts.page[key];
  return fillIn(typeof found === "string" ? found : found[plurals.select(Number(values.count))] ?? found.other, values);
}

/** @param {string} text @param {Record<string, string | number>} values */
function fillIn(text, values) {
  return text.replace(/\{(\w+)\}/g, (placeholder, name) => format(values[name]) ?? placeholder);
}

/** @param {string | number | undefined} value */
function format(value) {
  return typeof value === "number" ? numbers.format(value) : value;
}

/**
 * Why a call failed, and what to do about it. Includes the server's reason, which is English, only in English texts.
 * @param {string} code
 * @param {string} reason
 */
export function explainCall(code, reason) {
  const known = /** @type {Explanations} */ (texts.calls)[code];
  const what = known && (code === "failed" || !reason || hasDetails(code)) ? known.what : sentence(reason);
  return join(what, known?.remedy);
}

/** Whether the server's reason says more than `explainCall`. @param {string} code */
export function hasDetails(code) {
  return code in texts.calls && code !== "refused" && code !== "failed" && (!isEnglish || TECHNICAL.includes(code));
}

/**
 * What went wrong, and what to do about it.
 * @param {string} code
 * @param {string} [message] of the server, in English
 * @param {number} [wait] seconds until the person can try again
 */
export function explainError(code, message = "", wait = 0) {
  const known = /** @type {Explanations} */ (texts.errors)[code];
  if (!known || (isEnglish && message && DETAILED.includes(code))) return join(message, wait ? tryAgain(wait) : "");
  const isRejected = message && REJECTED.includes(code);
  return join(known.what, wait ? tryAgain(wait) : isRejected ? message : known.remedy);
}

/** @param {number} count seconds */
const tryAgain = (count) => t("tryAgain", { count });

/** @param {string} what @param {string} [remedy] */
const join = (what, remedy) => [what, remedy].filter(Boolean).join(language === "zh" ? "" : " ");

/**
 * A notice in an answer.
 * @param {{ code: string, text: string, fraction?: number }} notice
 */
export function explainNotice({ code, text, fraction = 0 }) {
  const own = isEnglish ? "" : /** @type {Record<string, string>} */ (texts.notices)[code];
  return own ? fillIn(own, { text: text.slice(text.indexOf(": ") + 2), percent: Math.round(fraction * 100) }) : text;
}

/** The name of a strategy, and what it does. @param {string} strategy @returns {{ name: string, what: string }} */
export function explainStrategy(strategy) {
  const known = /** @type {Record<string, { name: string, what: string } | undefined>} */ (texts.strategies)[strategy];
  return known ?? { name: strategy, what: "" };
}

/** What a model does in a round. @param {string} role */
export function nameRole(role) {
  return /** @type {Record<string, string>} */ (texts.roles)[role] ?? role;
}

/** Why an answer ended early; empty when it did not. @param {string} stopReason */
export function explainEnding(stopReason) {
  return /** @type {Record<string, string>} */ (texts.endings)[stopReason] ?? "";
}

/** A reason as a sentence. @param {string} text */
function sentence(text) {
  const start = text.charAt(0).toUpperCase() + text.slice(1);
  return !start || /[.!?…。！？]["”)]?$/.test(start) ? start : `${start}.`;
}

/** The number of words, also in languages without spaces between them. @param {string} text */
export function countWords(text) {
  return [...new Intl.Segmenter(locale, { granularity: "word" }).segment(text)].filter((one) => one.isWordLike).length;
}

/** Adds the texts to `index.html`. */
export function fillTexts() {
  for (const [name, put] of Object.entries(places)) {
    for (const node of document.querySelectorAll(`[data-${name}]`)) {
      if (node instanceof HTMLElement) put(node, t(/** @type {Key} */ (node.dataset[name])));
    }
  }
}

/** @type {Record<string, (node: HTMLElement, text: string) => void>} */
const places = {
  text: (node, text) => { node.textContent = text; },
  placeholder: (node, text) => node.setAttribute("placeholder", text),
  label: (node, text) => {
    node.setAttribute("aria-label", text);
    if (node instanceof HTMLButtonElement) node.title = text;
  },
};

/**
 * A list of names; of many, the first three.
 * @param {string[]} names
 */
export function formatNames(names) {
  const rest = names.length - FEW;
  return lists.format(rest > 1 ? [...names.slice(0, FEW), t("otherFiles", { count: rest })] : names);
}

/**
 * The time of day, with the date if it is not today.
 * @param {Date} time
 */
export function formatTime(time) {
  const today = time.toDateString() === new Date().toDateString();
  return time.toLocaleString(locale, today ? { timeStyle: "short" } : { dateStyle: "medium", timeStyle: "short" });
}

/** The name of a day of the week. @param {number} n 0 for Monday */
export function nameWeekday(n) {
  return new Date(2024, 0, 1 + n).toLocaleDateString(locale, { weekday: "long" }); // that was a Monday
}

/** @param {Date} time */
export function formatDate(time) {
  return time.toLocaleDateString(locale, { dateStyle: "medium" });
}

/**
 * The heading for a time in a list: today, yesterday, or the month.
 * @param {Date} time
 */
export function formatPeriod(time) {
  const yesterday = new Date();
  yesterday.setDate(yesterday.getDate() - 1);
  if (time.toDateString() === new Date().toDateString()) return t("today");
  if (time.toDateString() === yesterday.toDateString()) return t("yesterday");
  return time.toLocaleDateString(locale, { month: "long", year: "numeric" });
}

/**
 * A duration.
 * @param {number} ms
 */
export function formatDuration(ms) {
  return ms < 1000 ? t("ms", { count: Math.round(ms) }) : t("seconds", { time: seconds.format(ms / 1000) });
}

/** A cost in an unknown currency. @param {number} amount */
export function formatCost(amount) {
  return costs.format(amount);
}

/**
 * A file size.
 * @param {number} bytes
 */
export function formatSize(bytes) {
  if (bytes < 1024) return t("bytes", { count: bytes });
  if (bytes < 1048576) return t("kib", { count: Math.ceil(bytes / 1024) });
  return t("mib", { size: tenths.format(bytes / 1048576) });
}
