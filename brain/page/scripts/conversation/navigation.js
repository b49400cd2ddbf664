// Conversation: the address of the page, and what was said elsewhere: the open conversation keeps to both.

import { startReading } from "../answer/reading.js";
import { idInAddress } from "../ground/address.js";
import { hearTabs } from "../ground/tabs.js";
import { conversation } from "./conversation.js";

/** The conversation of the address is opened, now and whenever somebody goes back or forward. */
export function startConversation() {
  startReading();
  window.addEventListener("hashchange", follow);
  hearTabs(() => conversation.catchUp());
  document.addEventListener("visibilitychange", () => conversation.catchUp());
  follow();
}

function follow() {
  const id = idInAddress();
  if (id === null) conversation.fresh();
  else if (id !== conversation.id) conversation.open(id);
}
