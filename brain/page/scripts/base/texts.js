// Texts in the reader's language. To add one: a file beside texts/en.js, and its line here.

import { en } from "../../texts/en.js";

/** @type {Record<string, Partial<typeof en>>} */
const languages = { en };

const language = navigator.languages.map((name) => name.split("-")[0]).find((name) => name in languages) ?? "en";
const locale = navigator.languages.find((name) => name.split("-")[0] === language) ?? language; // for numbers and dates
const texts = { ...en, ...languages[language] };
const plurals = new Intl.PluralRules(language);
const numbers = new Intl.NumberFormat(locale);
const lists = new Intl.ListFormat(language);
const FEW = 3;
const seconds = new Intl.NumberFormat(locale, { minimumFractionDigits: 1, maximumFractionDigits: 1 });
const tenths = new Intl.NumberFormat(locale, { maximumFractionDigits: 1 });

/**
 * A text with its places filled: `{name}` by `values.name`. One with several forms is chosen by `values.count`.
 * @param {keyof typeof en} key
 * @param {Record<string, string | number>} [values]
 */
export function t(key, values = {}) {
  const found = texts[key];
  const text = typeof found === "string" ? found : formOf(found, Number(values.count));
  return text.replace(/\{(\w+)\}/g, (place, name) => format(values[name]) ?? place);
}

/**
 * @param {Partial<Record<Intl.LDMLPluralRule, string>> & { other: string }} forms
 * @param {number} count
 */
function formOf(forms, count) {
  return forms[plurals.select(count)] ?? forms.other;
}

/** @param {string | number | undefined} value */
function format(value) {
  return typeof value === "number" ? numbers.format(value) : value;
}

/**
 * Fills in what `index.html` leaves open.
 * @param {ParentNode} [root]
 */
export function fill(root = document) {
  document.documentElement.lang = language;
  for (const [name, put] of Object.entries(places)) {
    for (const node of root.querySelectorAll(`[data-${name}]`)) {
      if (node instanceof HTMLElement) put(node, t(/** @type {keyof typeof en} */ (node.dataset[name])));
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
 * Names in a row; of many the first.
 * @param {string[]} names
 */
export function few(names) {
  const rest = names.length - FEW;
  return lists.format(rest > 1 ? [...names.slice(0, FEW), t("others", { count: rest })] : names);
}

/**
 * A time of day, or the day if it is another.
 * @param {Date} time
 */
export function when(time) {
  const today = time.toDateString() === new Date().toDateString();
  return time.toLocaleString(locale, today ? { timeStyle: "short" } : { dateStyle: "medium", timeStyle: "short" });
}

/**
 * @param {Date} time
 */
export function day(time) {
  return time.toLocaleDateString(locale, { dateStyle: "medium" });
}

/**
 * The heading for this time in a list: today, yesterday, or the month.
 * @param {Date} time
 */
export function period(time) {
  const yesterday = new Date();
  yesterday.setDate(yesterday.getDate() - 1);
  if (time.toDateString() === new Date().toDateString()) return t("today");
  if (time.toDateString() === yesterday.toDateString()) return t("yesterday");
  return time.toLocaleDateString(locale, { month: "long", year: "numeric" });
}

/**
 * How long something took, or takes.
 * @param {number} ms
 */
export function span(ms) {
  return ms < 1000 ? t("ms", { count: Math.round(ms) }) : t("seconds", { time: seconds.format(ms / 1000) });
}

/**
 * @param {number} bytes
 */
export function size(bytes) {
  if (bytes < 1024) return t("bytes", { count: bytes });
  if (bytes < 1048576) return t("kib", { count: Math.ceil(bytes / 1024) });
  return t("mib", { size: tenths.format(bytes / 1048576) });
}
