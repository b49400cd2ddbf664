// The form that adds a fact, or changes a fact or summary.

import { make, makeButton, makeProblemLine } from "../base/dom.js";
import { errorText } from "../base/server.js";
import { t } from "../base/texts.js";

/**
 * @typedef {import("../base/types.js").Item} Item
 * @typedef {import("../base/types.js").Category} Category
 * @typedef {{ text: string, category: Category | null, mutable: boolean }} FactFields null: the server chooses it
 */

/** @type {readonly Category[]} */
export const CATEGORIES = ["personal", "preferences", "knowledge", "general"];
const FACT_LENGTH = 500, MEMORY_LENGTH = 1000;

/**
 * @param {Item | null} item null for a new fact
 * @param {(fields: FactFields) => Promise<void>} save
 * @param {() => void} close
 */
export function makeMemoryForm(item, save, close) {
  const text = makeTextField(item), category = makeCategoryField(item), protect = make("input");
  protect.type = "checkbox";
  protect.checked = item !== null && !item.mutable;
  const problem = makeProblemLine();
  const yes = make("button", "primary", t(item ? "save" : "add"));
  const facts = item?.kind === "memory" ? [] : [
    make("label", "field", t("category"), category),
    make("label", "check", protect, t("protect")),
  ];
  const form = make("form", "fact", text, make("div", "row", ...facts), problem,
    make("div", "row end", makeButton(t("cancel"), close), yes));
  form.onsubmit = async (event) => {
    event.preventDefault();
    yes.disabled = true;
    const chosen = /** @type {Category | ""} */ (category.value) || null;
    const fields = { text: text.value, category: chosen, mutable: !protect.checked };
    problem.textContent = await save(fields).then(() => "", errorText);
    yes.disabled = false;
    if (problem.textContent) text.focus();
  };
  form.onkeydown = (event) => {
    if (event.key === "Escape") {
      event.preventDefault(); // else the whole dialog would close
      close();
    }
    if (event.key !== "Enter" || event.isComposing || event.target !== text) return;
    event.preventDefault();
    form.requestSubmit();
  };
  return form;
}

/** @param {Item | null} item */
function makeTextField(item) {
  const text = make("textarea");
  text.rows = 2;
  text.required = true;
  text.dir = "auto";
  text.maxLength = item?.kind === "memory" ? MEMORY_LENGTH : FACT_LENGTH;
  text.value = item?.text ?? "";
  text.placeholder = item ? "" : t("factShort");
  text.setAttribute("aria-label", t(item?.kind === "memory" ? "summary" : "fact"));
  return text;
}

/** @param {Item | null} item */
function makeCategoryField(item) {
  const select = make("select");
  const none = item ? [] : [new Option(t("automatic"), "")];
  select.append(...none, ...CATEGORIES.map((one) => new Option(t(one), one)));
  if (item?.category) select.value = item.category;
  return select;
}
