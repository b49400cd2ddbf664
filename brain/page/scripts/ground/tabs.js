// Ground: the other tabs of this page. What one of them changes is told to all others, once.

/**
 * @typedef {object} News
 * @property {string} [user] who is signed in from now on; empty for nobody
 * @property {string} [renamed] a conversation
 * @property {string} [title] what it is called now
 * @property {string} [deleted] a conversation
 * @property {boolean} [recall] whether memory is used from now on
 */

const channel = new BroadcastChannel(`brain ${location.pathname}`); // what is mounted elsewhere is not told

/** @param {News} news without anything: something changed */
export function tellTabs(news) {
  channel.postMessage(news);
}

/** @param {(news: News) => void} hear */
export function hearTabs(hear) {
  channel.addEventListener("message", ({ data }) => hear(Object(data))); // other pages of this host may say anything
}
