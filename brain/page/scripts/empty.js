// Room: the empty conversation: a question, and examples that work without a network.

import { button, make } from "./dom.js";
import { request } from "./server.js";
import { t } from "./texts.js";

/** @type {Record<string, Parameters<typeof t>[0]>} */
const EXAMPLES = { docs: "exampleOfDocs", medical: "exampleOfMedical", memory: "exampleOfMemory", calendar: "exampleOfCalendar" };
const MOST = 4;

/** @type {Promise<string[]> | null} */
let asked = null;

/**
 * @param {(question: string) => void} ask
 */
export function makeEmpty(ask) {
  const list = make("ul", "examples");
  list.setAttribute("aria-label", t("examples"));
  asked ??= questions().catch(() => {
    asked = null;
    return [];
  });
  asked.then((found) => list.append(...found.map((question) => make("li", "", button(question, () => ask(question))))));
  return make("section", "empty", make("h2", "", t("emptyTitle")), make("p", "", t("emptyText")), list);
}

/** Of the specialists that need nobody outside, the known ones first. */
async function questions() {
  /** @type {{ name: string, examples?: string[], available?: boolean, outside?: boolean }[]} */
  const all = (await request("GET", "v1/specialists")).specialists;
  const ready = all.filter(({ available, outside }) => available !== false && !outside);
  const known = Object.entries(EXAMPLES).filter(([name]) => ready.some((one) => one.name === name));
  const others = ready.filter(({ name, examples }) => !(name in EXAMPLES) && examples?.length);
  return [...known.map(([, key]) => t(key)), ...others.map(({ examples }) => sentence(examples?.[0] ?? ""))].slice(0, MOST);
}

/** @param {string} words */
function sentence(words) {
  return words.charAt(0).toUpperCase() + words.slice(1);
}
