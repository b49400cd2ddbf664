// The empty conversation: a heading and examples that work without a network.

import { make, makeButton } from "../base/dom.js";
import { makeAttachment } from "../base/files.js";
import { isEnglish, t } from "../base/texts.js";
import { usesDemoModel } from "../dialogs/choices.js";
import { usable } from "../dialogs/specialists.js";

/** @typedef {import("../base/types.js").Attached} Attached */
/** @typedef {import("../base/types.js").Specialist} Specialist */
/** @typedef {{ question: string, picture?: string }} Example */

/**
 * Examples for Brain's own specialists that work without a network.
 * @type {Record<string, { key: Parameters<typeof t>[0], picture?: string }>}
 */
const EXAMPLES = {
  docs: { key: "exampleOfDocs" },
  ocr: { key: "exampleOfOcr", picture: "ticket.png" },
  medical: { key: "exampleOfMedical" },
  memory: { key: "exampleOfMemory" },
  calendar: { key: "exampleOfCalendar" },
};
const BRAINS = "brain-sse "; // the start of the origin of Brain's own specialists
const MOST = 4, OF_OTHERS = 2;

/**
 * @param {(question: string, files: Attached[]) => void} ask
 */
export function makeEmpty(ask) {
  const list = make("ul", "examples");
  list.setAttribute("aria-label", t("examples"));
  list.append(...chooseExamples().map((one) => make("li", "", makeExampleButton(one, ask))));
  return make("section", "empty", make("h2", "", t("emptyTitle")), make("p", "", t("emptyText")), list);
}

/**
 * Examples for Brain's own specialists and a few added ones. For the demo model, they are in English.
 * @returns {Example[]}
 */
function chooseExamples() {
  const specialists = usable(), isDemo = usesDemoModel() && !isEnglish;
  const isAdded = (/** @type {Specialist} */ one) => !one.origin.startsWith(BRAINS) && one.examples.length > 0;
  const added = specialists.filter(isAdded).slice(0, OF_OTHERS);
  const known = Object.entries(EXAMPLES).flatMap(([name, { key, picture }]) => {
    const specialist = specialists.find((one) => one.name === name);
    return specialist ? [{ question: isDemo && !picture ? exampleOf(specialist) : t(key), picture }] : [];
  });
  return [...known.slice(0, MOST - added.length), ...added.map((one) => ({ question: exampleOf(one) }))];
}

/**
 * @param {Example} example
 * @param {(question: string, files: Attached[]) => void} ask
 */
function makeExampleButton({ question, picture }, ask) {
  if (!picture) return makeButton(question, () => ask(question, []));
  const image = make("img"), node = makeButton(question, async () => ask(question, await fetchPicture(picture)));
  image.src = addressOf(picture);
  image.alt = "";
  node.prepend(image);
  node.setAttribute("aria-description", t("withPicture"));
  return node;
}

/** @param {string} picture */
const addressOf = (picture) => `page/examples/${picture}`;

/**
 * The picture as an attachment, unless it cannot be loaded.
 * @param {string} name
 * @returns {Promise<Attached[]>}
 */
async function fetchPicture(name) {
  const data = await fetch(addressOf(name)).then((found) => found.blob(), () => null);
  if (!data) return [];
  return [makeAttachment(new File([data], name, { type: data.type }))];
}

/** @param {Specialist} specialist */
function exampleOf({ examples: [first] }) {
  return first.charAt(0).toUpperCase() + first.slice(1);
}
