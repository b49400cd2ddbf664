// The sentences about failed calls.

import { explainCall, t } from "../base/texts.js";

const UNREADABLE = "?"; // the name in a call that could not be read
const RAN = ["timeout", "failed"]; // calls with any other code did not start

/** The name of a call for a person. @param {string} name */
export function displayName(name) {
  return name === UNREADABLE ? t("someCall") : name;
}

/** @param {{ name: string, code: string, reason: string }} call */
export function describeFailure({ name, code, reason }) {
  const key = RAN.includes(code) ? "didFail" : "notRun";
  return t(key, { name: displayName(name), reason: explainCall(code, reason) });
}
