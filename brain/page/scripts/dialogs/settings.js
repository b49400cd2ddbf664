// The settings dialog: settings of this browser, keyboard shortcuts, and who is signed in.

import { openDialog } from "../base/dialog.js";
import { find, hasTouchScreen, make, makeButton, makeProblemLine } from "../base/dom.js";
import { errorText } from "../base/server.js";
import { canNotify, isNotifying, setNotifying } from "../base/notifications.js";
import { addShortcut, commandKey, listShortcuts } from "../base/shortcuts.js";
import { sharedStorage } from "../base/storage.js";
import { makeSwitch } from "../base/switch.js";
import { chooseLanguage, chosenLanguage, languages, t } from "../base/texts.js";
import { setUser, signOut } from "./signin.js";

/** Fires `changed` when a setting changed. */
export const settings = new EventTarget();

/** Whether Enter sends the message. Otherwise it starts a new line, which is the default on phones. */
export function enterSends() {
  return (sharedStorage.get("enter") ?? (hasTouchScreen ? "line" : "sends")) === "sends";
}

/** @param {import("../base/types.js").Start} start */
export function startSettings(start) {
  if (start.keys) setUser(start.user);
  find("settings-open", HTMLButtonElement).onclick = () => show(start);
  addShortcut("/", false, t("showSettings"), () => show(start));
}

/** @param {import("../base/types.js").Start} start */
function show(start) {
  const keys = hasTouchScreen ? [] : [makeShortcutList()], who = start.keys ? [makeAccount(start.user)] : [];
  const version = make("p", "small", t("version", { version: start.version }));
  const choices = [makeThemeChoice(), makeLanguageChoice(), makeEnterChoice(), ...makeNotificationChoice()];
  openDialog(t("settings"), [...choices, ...keys, ...who, version], { light: true });
}

function makeThemeChoice() {
  const texts = { "": t("themeAuto"), light: t("themeLight"), dark: t("themeDark") };
  return makeChoice(t("theme"), texts, sharedStorage.get("theme") ?? "", (theme) => {
    sharedStorage.put("theme", theme || null);
    document.documentElement.dataset.theme = theme;
  });
}

/** Buttons, because radio buttons would reload the page at the first press of an arrow key. */
function makeLanguageChoice() {
  const group = make("fieldset", "choice languages", make("legend", "", t("language")));
  for (const [tag, name] of [["", t("languageAuto")], ...languages()]) {
    const node = makeButton(name, () => chooseLanguage(tag), { className: "quiet" });
    if (tag) node.lang = tag;
    node.ariaPressed = String(tag === chosenLanguage());
    group.append(node);
  }
  return group;
}

function makeEnterChoice() {
  const texts = { sends: t("enterSends"),
    line: hasTouchScreen ? t("enterLines") : t("enterLine", { key: commandKey }) };
  return makeChoice(t("enter"), texts, enterSends() ? "sends" : "line", (enter) => sharedStorage.put("enter", enter));
}

function makeNotificationChoice() {
  if (!canNotify()) return [];
  const about = make("p", "small", t("notifyWhat"));
  const { box, name } = makeSwitch(t("notify"), about, isNotifying(), async (on) => {
    box.checked = await setNotifying(on);
    about.textContent = t(on && !box.checked ? "notifyBlocked" : "notifyWhat");
  });
  return [make("div", "switch-row", name, box, about)];
}

/**
 * @param {string} title
 * @param {Record<string, string>} texts
 * @param {string} now
 * @param {(value: string) => void} choose
 */
function makeChoice(title, texts, now, choose) {
  const group = make("fieldset", "choice", make("legend", "", title));
  for (const [value, text] of Object.entries(texts)) {
    const radio = make("input");
    radio.type = "radio";
    radio.name = title;
    radio.checked = value === now;
    radio.onchange = () => {
      choose(value);
      settings.dispatchEvent(new Event("changed"));
    };
    group.append(make("label", "", radio, text));
  }
  return group;
}

function makeShortcutList() {
  const enter = enterSends() ? [] : [commandKey], line = enterSends() ? [t("shift")] : [];
  const ours = [
    { keys: [...enter, t("enterName")], label: t("sendKey") },
    { keys: [...line, t("enterName")], label: t("lineKey") },
    { keys: [t("escape")], label: t("stopKey") },
  ];
  const rows = [...ours, ...listShortcuts()].map(({ keys, label }) => {
    return make("div", "", make("dt", "", label), make("dd", "", ...keys.map((key) => make("kbd", "", key))));
  });
  return make("section", "", make("h3", "", t("shortcuts")), make("dl", "keys", ...rows));
}

/** @param {string} user */
function makeAccount(user) {
  const problem = makeProblemLine();
  const leave = async () => { problem.textContent = await signOut().then(() => "", errorText); };
  const line = make("div", "row", make("span", "", t("signedInAs", { user })), makeButton(t("signOut"), leave));
  return make("section", "", make("h3", "", t("account")), line, problem);
}
