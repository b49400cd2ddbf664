// Modal dialogs of the browser: the focus stays inside, Esc closes them, and then the focus returns.

import { make, makeButton, makeProblemLine } from "./dom.js";
import { errorText } from "./server.js";
import { t } from "./texts.js";

let count = 0;

/**
 * Opens a dialog, which is removed when it closes.
 * @param {string} title
 * @param {Node[]} content
 * @param {{ className?: string, light?: boolean }} [look] `light`: a click outside closes it
 */
export function openDialog(title, content, look = {}) {
  const heading = make("h2", "", title);
  heading.id = `dialog-${(count += 1)}`;
  const close = makeButton(t("close"), () => dialog.close(), { icon: "close", className: "quiet square" });
  const body = make("div", "dialog-body", ...content);
  const dialog = make("dialog", look.className ?? "", make("header", "dialog-head", heading, close), body);
  dialog.setAttribute("aria-labelledby", heading.id);
  if (look.light) dialog.setAttribute("closedby", "any");
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

/**
 * Asks for a confirmation and acts. The dialog shows a problem and can be tried again.
 * @param {{ title: string, text: string[], label: string, act: () => Promise<unknown>, danger?: boolean,
 *   field?: HTMLElement, already?: AbortSignal }} question `field`: an input for the person; `already`: aborted when
 *   it was done elsewhere
 * @returns {Promise<boolean>} whether it was done
 */
export function askConfirmation({ title, text, label, act, danger = false, field, already }) {
  const problem = makeProblemLine();
  const cancel = makeButton(t("cancel"), () => dialog.close());
  const yes = make("button", danger ? "danger" : "primary", label);
  const lines = text.map((line) => make("p", "", line));
  const form = make("form", "decision", ...lines, field ?? "", problem, make("div", "row end", cancel, yes));
  if (!field) cancel.autofocus = true;
  const dialog = openDialog(title, [form], { className: "small-dialog" });
  return new Promise((resolve) => {
    let done = false;
    dialog.addEventListener("close", () => resolve(done || Boolean(already?.aborted)));
    already?.addEventListener("abort", () => dialog.close());
    form.onsubmit = async (event) => {
      event.preventDefault();
      yes.disabled = true;
      problem.textContent = await act().then(() => "", errorText);
      yes.disabled = false;
      done = !problem.textContent;
      if (done) dialog.close();
      else (field?.querySelector("input") ?? yes).focus();
    };
  });
}
