// Notifications of the browser, which a person turns on, and which appear only while the page is hidden.

import { sharedStorage } from "./storage.js";

/** Whether the browser has notifications; most have none on plain HTTP. */
export const canNotify = () => "Notification" in window && isSecureContext;

/** Whether a person wants notifications and the browser allows them. */
export const isNotifying = () => {
  return canNotify() && Notification.permission === "granted" && sharedStorage.get("notify") !== null;
};

/**
 * Turns notifications on or off. Asks the person for permission.
 * @param {boolean} on
 * @returns {Promise<boolean>} whether they are on now
 */
export async function setNotifying(on) {
  sharedStorage.put("notify", on ? "on" : null);
  if (on) await Notification.requestPermission();
  return isNotifying();
}

/**
 * @param {{ title: string, body: string, tag: string, address: string }} content `tag`: replaces one with the same tag;
 *   `address`: what a click opens
 */
export function notify({ title, body, tag, address }) {
  if (!isNotifying() || !document.hidden) return;
  try {
    const notification = new Notification(title, { body, tag });
    notification.onclick = () => {
      window.focus();
      location.hash = address;
      notification.close();
    };
  } catch (error) {
    if (!(error instanceof TypeError)) throw error; // phones show only those of a service worker
  }
}
