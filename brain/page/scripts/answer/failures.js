// Words for people about why a call failed. The reason in the event is written for the model.

import { t } from "../base/texts.js";

/** @type {Record<string, Parameters<typeof t>[0]>} */
const WORDS = {
  unknown: "whyUnknown",
  malformed: "whyMalformed",
  oversized: "whyOversized",
  forged: "whyForged",
  invalid_params: "whyInvalid",
  unauthorized: "whyUnauthorized",
  denied: "whyDenied",
  unavailable: "whyUnavailable",
  repeated: "whyRepeated",
  timeout: "whyTimeout",
  failed: "whyFailed",
  call_limit: "whyCallLimit",
  specialist_limit: "whySpecialistLimit",
  deadline: "whyDeadline",
};

const UNREADABLE = "?"; // the name in a call that could not be read, or that was none
const RAN = ["timeout", "failed"]; // all others were refused before

/** @typedef {{ name: string, code: string, reason: string }} Failed */

/** The name of a call, also of one whose name is unknown. @param {string} name */
export function displayName(name) {
  return name === UNREADABLE ? t("someCall") : name;
}

/** The failure in a sentence. @param {Failed} call */
export function failure({ name, code, reason }) {
  const why = saysMore(code) ? t(WORDS[code]) : reason;
  return t(RAN.includes(code) ? "didFail" : "notRun", { name: displayName(name), reason: why });
}

/** Whether the reason adds to the sentence. A refusal is its own sentence. @param {string} code */
export function saysMore(code) {
  return Object.hasOwn(WORDS, code);
}
