// Messages between the tabs of this page.

/**
 * @typedef {object} News
 * @property {string} [user] who is signed in now, or an empty text
 * @property {string} [renamed] the id of a conversation
 * @property {string} [title] its new title
 * @property {string} [deleted] the id of a conversation
 * @property {import("./types.js").TaskNews} [task] an event about a task
 * @property {import("./types.js").Report} [report] a report on tasks begins
 * @property {boolean} [tasks] whether a task was deleted
 * @property {boolean} [recall] whether memory is on now
 */

const channel = new BroadcastChannel(`brain ${location.pathname}`); // apps at other paths have other channels

/** @param {News} news an empty object: something changed */
export function notifyTabs(news) {
  channel.postMessage(news);
}

/** @param {(news: News) => void} act */
export function onTabNews(act) {
  channel.addEventListener("message", ({ data }) => act(Object(data))); // other pages on this host can post anything
}
