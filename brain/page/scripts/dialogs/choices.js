// What a person chooses for their messages: model, specialists and memory.

import { find, make } from "../base/dom.js";
import { sharedStorage } from "../base/storage.js";
import { t } from "../base/texts.js";
import { isMemoryLeftOut, setRecall, usesMemory } from "./recall.js";
import { allowed, startSpecialists } from "./specialists.js";

/** @typedef {import("../base/types.js").Model} Model */

const select = find("model", HTMLSelectElement), box = find("model-box", HTMLElement);
const standIn = find("stand-in", HTMLParagraphElement);

/** @type {Model[]} */
let models = [];

/** @param {import("../base/types.js").Start} start */
export function startChoices(start) {
  models = start.models;
  select.replaceChildren(...models.map(makeOption));
  select.value = (modelNamed(sharedStorage.get("model") ?? "") ?? defaultModel())?.name ?? "";
  select.onchange = () => {
    sharedStorage.put("model", select.value === defaultModel()?.name ? null : select.value);
    show();
  };
  show();
  startSpecialists(start.specialists);
  setRecall(start.recall);
}

/**
 * The fields of a request that differ from the server's defaults.
 * @returns {{ model?: string, specialists?: string[], memory?: boolean }}
 */
export function chosenFields() {
  const specialists = allowed(usesMemory() ? "" : "memory"); // it reads and stores facts
  return {
    ...(select.value === defaultModel()?.name ? {} : { model: select.value }),
    ...(specialists ? { specialists } : {}),
    ...(isMemoryLeftOut() ? { memory: false } : {}),
  };
}

/**
 * @param {string} name
 * @returns {Model | undefined} undefined when the server no longer offers it
 */
export function modelNamed(name) {
  return models.find((model) => model.name === name);
}

/** Whether the chosen model is only a demo. */
export const usesDemoModel = () => Boolean(modelNamed(select.value)?.stand_in);

/** The default model. */
function defaultModel() {
  return models.find((model) => model.default);
}

/** @param {Model} model */
function makeOption(model) {
  const node = make("option", "", model.stand_in ? t("demoModel", { name: model.name }) : model.name);
  node.value = model.name;
  return node;
}

function show() {
  const model = modelNamed(select.value);
  standIn.hidden = !model?.stand_in;
  standIn.textContent = model?.stand_in ? t("demoMode", { name: model.name }) : "";
  select.title = model?.name ?? "";
  box.dataset.name = select.title.replace(/^\w+:/, ""); // a phone has no room for the provider
}
