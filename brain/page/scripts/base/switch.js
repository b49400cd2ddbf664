// A switch with a label.

import { make } from "./dom.js";

let count = 0;

/**
 * @param {string} label
 * @param {HTMLElement} about its description
 * @param {boolean} on
 * @param {(on: boolean) => void} set
 */
export function makeSwitch(label, about, on, set) {
  const box = make("input", "switch"), name = make("label", "switch-name", label);
  box.type = "checkbox";
  box.setAttribute("role", "switch");
  box.checked = on;
  box.onchange = () => set(box.checked);
  box.id = name.htmlFor = `switch-${(count += 1)}`;
  about.id = `${box.id}-about`;
  box.setAttribute("aria-describedby", about.id);
  return { box, name };
}
