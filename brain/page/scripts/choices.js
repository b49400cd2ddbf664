// Room: what a person chooses for their questions: the model, the specialists that may be asked, what is recalled.

/** @type {Map<string, import("./types.js").Model>} */
const models = new Map();

/** @param {import("./types.js").Start} start */
export function startChoices(start) {
  for (const model of start.models) models.set(model.name, model);
}

/**
 * The fields of a turn's request that differ from what the server does by itself.
 * @returns {{ model?: string, specialists?: string[], memory?: boolean }}
 */
export function chosen() {
  return {};
}

/**
 * @param {string} name
 * @returns {import("./types.js").Model | undefined} undefined for one that the server does not offer any more
 */
export function modelNamed(name) {
  return models.get(name);
}
