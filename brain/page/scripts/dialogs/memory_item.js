// One fact or summary in the list: its text, date and origin, with buttons to change and delete it.

import { addressOf } from "../base/address.js";
import { askConfirmation } from "../base/dialog.js";
import { make, makeButton } from "../base/dom.js";
import { request, unlessGone } from "../base/server.js";
import { formatDate, t } from "../base/texts.js";
import { makeMemoryForm } from "./memory_form.js";

/**
 * @typedef {import("../base/types.js").Item} Item
 * @typedef {{ changed: (item: Item) => void, deleted: (item: Item) => void,
 *   close: () => void }} Memory
 */

/**
 * @param {Item} item
 * @param {Memory} memory
 * @returns {HTMLLIElement}
 */
export function makeMemoryItem(item, memory) {
  const node = make("li", "item"), text = make("p", "item-text", item.text);
  text.dir = "auto";
  text.id = `item-${item.id}`;
  const edit = makeButton(t("edit"), () => change(node, item, memory), { icon: "edit", className: "quiet square" });
  const erase = makeButton(t("delete"), () => forget(item, memory), { icon: "delete", className: "quiet square" });
  for (const one of [edit, erase]) one.setAttribute("aria-describedby", text.id);
  const about = make("div", "item-about", text, describe(item, memory), ...formerTexts(item));
  node.append(about, make("div", "item-actions", edit, erase));
  return node;
}

/** @param {Item} item @param {Memory} memory */
function describe(item, memory) {
  const line = make("p", "small"), isChanged = item.updated.slice(0, 10) !== item.created.slice(0, 10);
  const since = t(isChanged ? "changedOn" : "addedOn", { date: formatDate(new Date(item.updated)) });
  if (!item.mutable) line.append(make("span", "tag", t("protected")), " ");
  const more = [...(item.count ? [t("inConversations", { count: item.count })] : []),
    ...(item.outside ? [t("fromOutside")] : [])];
  line.append(since, ...linkToConversation(item, memory), ...more.map((text) => ` · ${text}`));
  return line;
}

/** @param {Item} item @param {Memory} memory */
function linkToConversation({ conversation_id, kind }, memory) {
  if (!conversation_id) return [];
  const link = make("a", "", t(kind === "fact" ? "showInConversation" : "openConversation"));
  link.href = addressOf(conversation_id);
  link.onclick = () => memory.close();
  return [" · ", link];
}

/** @param {Item} item */
function formerTexts({ was }) {
  return was.map(({ text, until }) => {
    return make("p", "small", t("formerText", { text, date: formatDate(new Date(until)) }));
  }).reverse();
}

/** @param {HTMLElement} node @param {Item} item @param {Memory} memory */
function change(node, item, memory) {
  const before = [...node.childNodes];
  const close = () => {
    node.replaceChildren(...before);
    node.querySelector("button")?.focus();
  };
  const form = makeMemoryForm(item, async (fields) => memory.changed(await save(item, fields)), close);
  node.replaceChildren(form);
  form.querySelector("textarea")?.focus();
}

/**
 * To change a protected text, removes the protection first and restores it afterwards.
 * @param {Item} item
 * @param {import("./memory_form.js").FactFields} fields
 * @returns {Promise<Item>}
 */
async function save(item, { text, category, mutable }) {
  const sent = { text, ...(category && item.kind === "fact" ? { category } : {}), mutable };
  if (item.mutable || mutable || text === item.text) return request("PATCH", `v1/memory/${item.id}`, sent);
  await request("PATCH", `v1/memory/${item.id}`, { ...sent, mutable: true });
  return request("PATCH", `v1/memory/${item.id}`, { mutable: false });
}

/** @param {Item} item @param {Memory} memory */
async function forget(item, memory) {
  const title = t(item.kind === "fact" ? "deleteFact" : "deleteSummary");
  const act = () => request("DELETE", `v1/memory/${item.id}`).catch(unlessGone);
  const text = [t("deleteItemWhat", { text: item.text }), ...(item.conversation_id ? [t("deleteItemSource")] : [])];
  if (await askConfirmation({ title, text, label: t("delete"), act, danger: true })) memory.deleted(item);
}
