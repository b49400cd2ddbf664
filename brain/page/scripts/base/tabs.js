// Messages between the tabs of this page.

/**
 * @typedef {object} News
 * @property {string} [user] who is signed in from now on; empty for nobody
 * @property {string} [renamed] a conversation
 * @property {string} [title] what it is called now
 * @property {string} [deleted] a conversation
 * @property {boolean} [recall] whether memory is used from now on
 */

const channel = new BroadcastChannel(`brain ${location.pathname}`); // an app with another path has its own channel

/** @param {News} news without anything: something changed */
export function notifyTabs(news) {
  channel.postMessage(news);
}

/** @param {(news: News) => void} act */
export function onTabNews(act) {
  channel.addEventListener("message", ({ data }) => act(Object(data))); // other pages of this host may post anything
}
