// Room: the address of the page, and what was said elsewhere: the open conversation keeps to both.

import { idInAddress } from "./address.js";
import { conversation } from "./conversation.js";
import { startReading } from "./reading.js";
import { hearTabs } from "./tabs.js";

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
