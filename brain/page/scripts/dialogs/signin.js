// Dialogs: signing in with a key, when the server asks for one. Who we are is kept in a cookie that no script reads.

import { confirmed } from "../ground/dialog.js";
import { make } from "../ground/dom.js";
import { keptHere } from "../ground/keeping.js";
import { request, signsIn, told } from "../ground/server.js";
import { hearTabs, tellTabs } from "../ground/tabs.js";
import { t } from "../ground/texts.js";

/** @type {Promise<boolean> | null} */
let asking = null;
let user = ""; // who the page is shown to, where there are keys
let elsewhere = new AbortController();

/** Takes the server's questions for a key from now on; those that come together are one. */
export function startSigningIn() {
  signsIn(() => {
    asking ??= signedIn().finally(() => { asking = null; });
    return asking;
  });
  hearTabs(({ user: now }) => { if (now !== undefined) heard(now); });
  document.addEventListener("visibilitychange", look);
}

/**
 * Who the page is shown to: for somebody else it is loaded anew.
 * @param {string} name
 */
export function shownTo(name) {
  user = name;
}

/** Signs out, and shows nothing any more of who was here, in no tab. */
export async function signOut() {
  await request("DELETE", "v1/session");
  tellTabs({ user: "" });
  startAnew();
}

function signedIn() {
  const key = make("input");
  key.type = "password";
  key.autocomplete = "current-password";
  key.required = true;
  key.autofocus = true;
  elsewhere = new AbortController();
  return confirmed({
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
  tellTabs({ user: now.user });
  heard(now.user);
}

/** A tab that was asleep may have missed that another one signed in. */
async function look() {
  if (!document.hidden && user) await request("GET", "v1/session").then((now) => heard(now.user), told);
}

/** @param {string} now who is signed in; empty for nobody */
function heard(now) {
  if (user && now !== user) startAnew();
  else if (now) elsewhere.abort();
}

/** Nothing that is shown or was begun here is the next person's. */
function startAnew() {
  keptHere.clear();
  location.replace(location.pathname + location.search);
}
