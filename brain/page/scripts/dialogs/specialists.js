// The specialists dialog. The browser stores the ones switched off, so new specialists are on.

import { openDialog } from "../base/dialog.js";
import { find, make, makeButton } from "../base/dom.js";
import { errorText, request } from "../base/server.js";
import { sharedStorage } from "../base/storage.js";
import { makeSwitch } from "../base/switch.js";
import { t } from "../base/texts.js";
import { isAssistOff, setAssist } from "./assistance.js";

/** @typedef {import("../base/types.js").Specialist} Specialist */

const opener = find("specialists-open", HTMLButtonElement);

/** @type {Specialist[]} */
let known = [];
let isAssistOffered = false;
let off = new Set(sharedStorage.get("specialists.off")?.split(" "));

/**
 * Lets the button open the dialog.
 * @param {Specialist[]} specialists
 * @param {boolean} assists whether Brain chooses specialists for some model
 */
export function startSpecialists(specialists, assists) {
  opener.onclick = show;
  known = specialists;
  isAssistOffered = assists;
  set([...off]);
}

/**
 * The specialists that the model can call; null for all.
 * @param {string} [without] one more that is off
 */
export function allowed(without) {
  const on = usable().filter(({ name }) => !off.has(name) && name !== without);
  return off.size || on.length < usable().length ? on.map(({ name }) => name) : null;
}

/** Available specialists that are switched on. */
export function usable() {
  return known.filter(({ available }) => available);
}

/** Loads the list again, since specialists may have changed. */
async function load() {
  known = (await request("GET", "v1/specialists")).specialists;
  set([...off]);
}

/** @param {string[]} switchedOff names that no longer exist are dropped */
function set(switchedOff) {
  off = new Set(switchedOff.filter((name) => known.some((one) => one.name === name)));
  const on = allowed();
  sharedStorage.put("specialists.off", off.size ? [...off].join(" ") : null);
  const all = usable().length, count = on && on.length < all ? t("someSpecialists", { on: on.length, all }) : "";
  opener.dataset.count = count; // CSS shows it, so that the button's name stays the same
  opener.setAttribute("aria-description", count);
}

function show() {
  const body = make("div", "specialists", make("p", "small", t("loading")));
  openDialog(t("specialists"), [body], { className: "wide-dialog", light: true });
  fillDialog(body);
}

/** @param {HTMLElement} body */
async function fillDialog(body) {
  const problem = await load().then(() => "", errorText);
  const retry = () => fillDialog(body);
  if (problem) return body.replaceChildren(make("p", "problem", problem), makeButton(t("retry"), retry));
  if (!known.length) return body.replaceChildren(make("p", "small", t("noSpecialists")));
  const list = make("ul", "specialist-list", ...known.map(rowOf));
  const assist = isAssistOffered || isAssistOff() ? [makeAssistSwitch()] : [];
  body.replaceChildren(make("p", "small", t("specialistsAbout")), ...assist, makeSwitches(list), list);
}

/** The switch for calls that Brain chooses in the open conversation. */
function makeAssistSwitch() {
  const help = make("p", "small", t("assistAbout")), { box, name } = makeSwitch(t("assist"), help, !isAssistOff(), setAssist);
  return make("div", "switches", make("div", "switch-row", name, box, help));
}

/** @param {HTMLElement} list */
function makeSwitches(list) {
  const boxes = () => [...list.querySelectorAll("input")].filter((box) => !box.disabled);
  const turn = (/** @type {boolean} */ on) => {
    for (const box of boxes()) box.checked = on;
    set(on ? [] : usable().map(({ name }) => name));
  };
  return make("div", "row", makeButton(t("all"), () => turn(true)), makeButton(t("none"), () => turn(false)));
}

/** @param {Specialist} one */
function rowOf(one) {
  const about = make("div", "specialist-about", make("p", "", one.description), ...makeNotes(one));
  const { box, name } = makeSwitch(one.name, about, one.available && !off.has(one.name), (on) => {
    set(on ? [...off].filter((name) => name !== one.name) : [...off, one.name]);
  });
  box.disabled = !one.available;
  return make("li", one.available ? "specialist" : "specialist away", name, box, about);
}

/** @param {Specialist} one */
function makeNotes(one) {
  const reason = one.unavailable_reason;
  const missing = one.available ? "" : reason ? t("notAvailable", { reason }) : t("notAvailableBare");
  const says = [
    one.approval === "always" ? t("asksAlways") : one.approval === "depends" ? t("asksSometimes") : "",
    one.activates_on.length ? t("runsOnFiles") : "",
  ].filter(Boolean);
  return [
    ...(missing ? [make("p", "problem", missing)] : []),
    ...(says.length ? [make("p", "small", says.join(" · "))] : []),
  ];
}
