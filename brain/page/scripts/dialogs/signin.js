// Sign in with an API key when the server asks for one. The session is in a cookie that no script can read.

import { askConfirmation } from "../base/dialog.js";
import { make } from "../base/dom.js";
import { errorText, request, setSignIn } from "../base/server.js";
import { tabStorage } from "../base/storage.js";
import { notifyTabs, onTabNews } from "../base/tabs.js";
import { t } from "../base/texts.js";

/** @type {Promise<boolean> | null} */
let asking = null;
let user = ""; // who is signed in, if the server has API keys
let elsewhere = new AbortController();

/** Opens the dialog when the server asks for a key. Requests that fail together share one dialog. */
export function startSigningIn() {
  setSignIn(() => {
    asking ??= showSignIn().finally(() => { asking = null; });
    return asking;
  });
  onTabNews(({ user: now }) => { if (now !== undefined) userChanged(now); });
  document.addEventListener("visibilitychange", look);
}

/**
 * Sets who is signed in. For another user, the page reloads.
 * @param {string} name
 */
export function setUser(name) {
  user = name;
}

/** Signs out and hides the data of the user in all tabs. */
export async function signOut() {
  await request("DELETE", "v1/session");
  notifyTabs({ user: "" });
  startAnew();
}

function showSignIn() {
  const key = make("input");
  key.type = "password";
  key.autocomplete = "current-password";
  key.required = true;
  key.autofocus = true;
  elsewhere = new AbortController();
  return askConfirmation({
    title: t("signInTitle"),
    text: [t("signInWhat")],
    label: t("signIn"),
    field: make("label", "field", t("key"), key),
    act: () => enter(key),
    already: elsewhere.signal,
  });
}

/** @param {HTMLInputElement} key */
async function enter(key) {
  const sent = key.value;
  key.value = "";
  const now = await request("POST", "v1/session", { key: sent });
  notifyTabs({ user: now.user });
  userChanged(now.user);
}

/** Checks who is signed in, since a sleeping tab gets no news from other tabs. */
async function look() {
  if (!document.hidden && user) await request("GET", "v1/session").then((now) => userChanged(now.user), errorText);
}

/** @param {string} now who is signed in, or an empty text */
function userChanged(now) {
  if (user && now !== user) startAnew();
  else if (now) elsewhere.abort();
}

/** Reloads the page, so that the next person sees no data of this one. */
function startAnew() {
  tabStorage.clear();
  location.replace(location.pathname + location.search);
}
