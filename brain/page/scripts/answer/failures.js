// Answer: why a call failed, in words for people. Its reason is written for the model, and tells it what to do.

import { t } from "../ground/texts.js";

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

/** The name of whom a call asked, which not every call says. @param {string} name */
export function named(name) {
  return name === UNREADABLE ? t("someCall") : name;
}

/** What became of it, in a sentence. @param {Failed} call */
export function failure({ name, code, reason }) {
  const why = saysMore(code) ? t(WORDS[code]) : reason;
  return t(RAN.includes(code) ? "didFail" : "notRun", { name: named(name), reason: why });
}

/** Whether its reason is more than what the sentence says: one that refuses says why by itself. @param {string} code */
export function saysMore(code) {
  return Object.hasOwn(WORDS, code);
}
