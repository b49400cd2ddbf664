// Dialogs: what a person chooses for their questions: the model, the specialists that may be asked, what is recalled.

import { find, make } from "../ground/dom.js";
import { kept } from "../ground/keeping.js";
import { t } from "../ground/texts.js";
import { leavesMemoryOut, recallIs, usesMemory } from "./recall.js";
import { allowed, startSpecialists } from "./specialists.js";

/** @typedef {import("../ground/types.js").Model} Model */

const select = find("model", HTMLSelectElement), box = find("model-box", HTMLElement);
const standIn = find("stand-in", HTMLParagraphElement);

/** @type {Model[]} */
let models = [];

/** @param {import("../ground/types.js").Start} start */
export function startChoices(start) {
  models = start.models;
  select.replaceChildren(...models.map(option));
  select.value = (modelNamed(kept.get("model") ?? "") ?? usual())?.name ?? "";
  select.onchange = () => {
    kept.put("model", select.value === usual()?.name ? null : select.value);
    show();
  };
  show();
  startSpecialists(start.specialists);
  recallIs(start.recall);
}

/**
 * The fields of a turn's request that differ from what the server does by itself.
 * @returns {{ model?: string, specialists?: string[], memory?: boolean }}
 */
export function chosen() {
  const specialists = allowed(usesMemory() ? "" : "memory"); // which finds and keeps facts when it is asked
  return {
    ...(select.value === usual()?.name ? {} : { model: select.value }),
    ...(specialists ? { specialists } : {}),
    ...(leavesMemoryOut() ? { memory: false } : {}),
  };
}

/**
 * @param {string} name
 * @returns {Model | undefined} undefined for one that the server does not offer any more
 */
export function modelNamed(name) {
  return models.find((model) => model.name === name);
}

/** The model that answers when none is named. */
function usual() {
  return models.find((model) => model.default);
}

/** @param {Model} model */
function option(model) {
  const node = make("option", "", model.stand_in ? t("standInModel", { name: model.name }) : model.name);
  node.value = model.name;
  return node;
}

function show() {
  const model = modelNamed(select.value);
  standIn.hidden = !model?.stand_in;
  standIn.textContent = model?.stand_in ? t("standIn", { name: model.name }) : "";
  select.title = model?.name ?? "";
  box.dataset.name = select.title.replace(/^\w+:/, ""); // on a phone there is no room for whose it is
}
