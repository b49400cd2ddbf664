// The conversation of a task: the card of the task is in the place of the message box.

import { log } from "../answer/scrolling.js";
import { TaskCard } from "../answer/task_card.js";
import { find, make } from "../base/dom.js";
import { tasks } from "../base/tasks.js";
import { t } from "../base/texts.js";

const foot = find("foot", HTMLElement), place = make("div", "work");

/** @type {TaskCard | null} */
let card = null;

/** @param {import("../base/types.js").Task | null | undefined} task null to show the box; undefined if it is unknown */
export function showWork(task) {
  const isWork = task !== null, id = task?.id ?? "";
  for (const node of [log, foot]) node.classList.toggle("read-only", isWork);
  if (!isWork) {
    card = null;
    place.remove();
    return;
  }
  if (!place.isConnected) foot.append(place);
  if (card?.id === id && id) return card.show();
  card = id ? new TaskCard(id) : null;
  place.replaceChildren(make("p", "small", t("workAbout")), ...(card ? [card.node] : []));
}

tasks.addEventListener("changed", () => card?.show());
