// What a person chooses for their messages: model, strategy, specialists and memory.

import { find, make } from "../base/dom.js";
import { sharedStorage } from "../base/storage.js";
import { explainStrategy, nameRole, t } from "../base/texts.js";
import { isAssistOff } from "./assistance.js";
import { isPrivate, privacy, startPrivacy } from "./privacy.js";
import { isMemoryLeftOut, setRecall, usesMemory } from "./recall.js";
import { allowed, startSpecialists } from "./specialists.js";

/** @typedef {import("../base/types.js").Model} Model */
/** @typedef {import("../base/types.js").Strategy} Strategy */

const CHECKED = "dual"; // the strategy whose answer can be checked first

const select = find("model", HTMLSelectElement), box = find("model-box", HTMLElement);
const standIn = find("stand-in", HTMLParagraphElement);
const strategySelect = find("strategy", HTMLSelectElement), strategyBox = find("strategy-box", HTMLElement);
const strategyWhat = find("strategy-what", HTMLParagraphElement);
const critic = find("critic", HTMLInputElement), criticBox = find("critic-box", HTMLLabelElement);

/** @type {Model[]} */
let models = [];
/** @type {Strategy[]} */
let strategies = [];
let isChosen = false; // the strategy, by a person, in the open conversation

/** @param {import("../base/types.js").Start} start */
export function startChoices(start) {
  models = start.models;
  select.replaceChildren(...models.map(({ name, stand_in }) => {
    return makeOption(name, stand_in ? t("demoModel", { name }) : name);
  }));
  select.onchange = () => {
    sharedStorage.put("model", select.value === defaultModel()?.name ? null : select.value);
    show();
    showStrategy();
  };
  strategies = start.strategies;
  strategySelect.replaceChildren(...strategies.map(({ name }) => makeOption(name, explainStrategy(name).name)));
  strategySelect.onchange = () => {
    isChosen = true;
    showStrategy();
  };
  critic.checked = sharedStorage.get("critic") !== null;
  critic.onchange = () => sharedStorage.put("critic", critic.checked ? "on" : null);
  privacy.addEventListener("changed", () => {
    show();
    showStrategy();
  });
  startPrivacy(models);
  useStrategy();
  startSpecialists(start.specialists, models.some(({ assist }) => assist));
  setRecall(start.recall);
}

/**
 * The fields of a request that differ from the server's defaults.
 * @returns {{ model?: string, strategy?: string, critic?: boolean, specialists?: string[], memory?: boolean,
 *   assist?: string, private?: boolean }}
 */
export function chosenFields() {
  const specialists = allowed(usesMemory() ? "" : "memory"); // it reads and stores facts
  return {
    ...(select.value === defaultModel()?.name ? {} : { model: select.value }),
    ...(strategySelect.value === defaultStrategy()?.name ? {} : { strategy: strategySelect.value }),
    ...(critic.checked && strategySelect.value === CHECKED ? { critic: true } : {}),
    ...(specialists ? { specialists } : {}),
    ...(isMemoryLeftOut() ? { memory: false } : {}),
    ...(isAssistOff() ? { assist: "off" } : {}),
    ...(isPrivate() ? { private: true } : {}),
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

/** Forgets which strategy a person chose, because another conversation is opened. */
export function forgetStrategy() {
  isChosen = false;
}

/**
 * Uses the strategy of a conversation, unless a person has chosen one in it.
 * @param {string} [name] that of its last answer; without one, or if the server no longer allows it, the default
 */
export function useStrategy(name) {
  if (isChosen) return;
  strategySelect.value = (strategies.find((one) => one.name === name) ?? defaultStrategy())?.name ?? "";
  showStrategy();
}

/** The default strategy. */
function defaultStrategy() {
  return strategies.find((strategy) => strategy.default);
}

/** @param {string} value @param {string} text */
function makeOption(value, text) {
  const node = make("option", "", text);
  node.value = value;
  return node;
}

/** The model of the next message: the chosen one, unless the conversation is private and that model is remote. */
function currentModel() {
  const chosen = modelNamed(sharedStorage.get("model") ?? "") ?? defaultModel();
  return isPrivate() && !chosen?.local ? models.find(({ local }) => local) ?? chosen : chosen;
}

function show() {
  const model = currentModel();
  models.forEach(({ local }, n) => { select.options[n].disabled = isPrivate() && !local; });
  select.value = model?.name ?? "";
  standIn.hidden = !model?.stand_in;
  standIn.textContent = model?.stand_in ? t("demoMode", { name: model.name }) : "";
  select.title = model?.name ?? "";
  box.dataset.name = select.title.replace(/^\w+:/, ""); // a phone has no room for the provider
}

function showStrategy() {
  const chosen = strategies.find(({ name }) => name === strategySelect.value);
  const { name, what } = explainStrategy(strategySelect.value), isDefault = !chosen || chosen.default;
  const roles = select.value === defaultModel()?.name && !isPrivate() ? Object.entries(chosen?.models ?? {}) : [];
  const several = new Set(roles.map(([, model]) => model)).size > 1;
  const who = several ? roles.map(([role, model]) => `${nameRole(role)}: ${model}`).join(" · ") : "";
  strategyBox.hidden = strategies.length < 2;
  strategySelect.title = strategyBox.dataset.name = name;
  strategyWhat.textContent = isDefault ? "" : [what, who].filter(Boolean).join(" ");
  criticBox.hidden = strategySelect.value !== CHECKED;
}
