// Opens the conversation in the URL and reacts to news from other tabs.

import { startScrolling } from "../answer/scrolling.js";
import { idInAddress } from "../base/address.js";
import { onTabNews } from "../base/tabs.js";
import { conversation } from "./conversation.js";

/** Opens the conversation in the URL, now and after each navigation. */
export function startConversation() {
  startScrolling();
  window.addEventListener("hashchange", follow);
  onTabNews(() => conversation.catchUp());
  document.addEventListener("visibilitychange", () => conversation.catchUp());
  follow();
}

function follow() {
  const id = idInAddress();
  if (id === null) conversation.startNew();
  else if (id !== conversation.id) conversation.open(id);
}
