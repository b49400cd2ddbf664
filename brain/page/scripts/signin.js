// Room: signing in with a key, when the server asks for one. Who we are is kept in a cookie that no script reads.

import { decided } from "./dialogs.js";
import { make } from "./dom.js";
import { request, signsIn } from "./server.js";
import { t } from "./texts.js";

/** @type {Promise<boolean> | null} */
let asking = null;
let user = "";

/** Takes the server's questions for a key from now on; those that come together are one. */
export function startSigningIn() {
  signsIn(() => {
    asking ??= signedIn().finally(() => { asking = null; });
    return asking;
  });
}

/**
 * Who the page is shown to: for somebody else it is loaded anew.
 * @param {string} name
 */
export function shownTo(name) {
  user = name;
}

/** Signs out, and shows nothing any more of who was here. */
export async function signOut() {
  await request("DELETE", "v1/session");
  startAnew();
}

function signedIn() {
  const key = make("input");
  key.type = "password";
  key.autocomplete = "current-password";
  key.required = true;
  key.autofocus = true;
  return decided({
    title: t("signInTitle"),
    text: [t("signInWhat")],
    label: t("signIn"),
    field: make("label", "field", t("key"), key),
    act: () => enter(key),
  });
}

/** @param {HTMLInputElement} key */
async function enter(key) {
  const sent = key.value;
  key.value = "";
  const now = await request("POST", "v1/session", { key: sent });
  if (user && now.user !== user) startAnew();
}

/** Nothing that is shown or was begun here is the next person's. */
function startAnew() {
  sessionStorage.clear();
  location.replace(location.pathname + location.search);
}
