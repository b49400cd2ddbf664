// The dialog that shows how an answer was made: rounds, requests, calls and decisions, with tokens and costs.

import { openDialog } from "../base/dialog.js";
import { make } from "../base/dom.js";
import { errorText, request } from "../base/server.js";
import {
  explainCall, explainEnding, explainError, explainNotice, formatCost, formatDuration, nameRole, t,
} from "../base/texts.js";

/**
 * @typedef {{ prompt_tokens: number, completion_tokens: number, reused_tokens: number | null, estimated: boolean }} Use
 * @typedef {Use & { number: number, began_ms: number, ended_ms: number | null, first_token_ms: number | null,
 *   model: string, round: number, error: string | null, status: number | null, is_prefill_refused: boolean, are_tools_refused: boolean,
 *   cost: number | null }} Pass
 * @typedef {{ name: string, params: object | null, turn_pass: number, began_ms: number, ms: number | null,
 *   by: string, outcome: string | null, reason?: string, cached: boolean, approval: string | null }} Call
 * @typedef {{ code: string, text: string, turn_pass: number }} Notice
 * @typedef {{ n: number, role: string, model: string, text?: string, began_ms?: number }} Round
 * @typedef {{ passes: Pass[], calls: Call[], notices: Notice[], rounds: Round[], usage: Use, total_ms: number,
 *   stop_reason: string | null, error: string | null, cost: number | null }} Report
 */

const PARAMS_LENGTH = 200; // characters

/** @param {string} id of the answer or its turn */
export function showExplanation(id) {
  const body = make("div", "explanation", make("p", "small", t("loading")));
  openDialog(t("explain"), [body], { className: "wide-dialog", light: true });
  fill(body, id);
}

/**
 * @param {HTMLElement} body
 * @param {string} id
 */
async function fill(body, id) {
  /** @type {Report | null} */
  let report = null;
  const problem = await request("GET", `v1/turns/${id}`).then((found) => { report = found; }, errorText);
  if (report) body.replaceChildren(...explain(report));
  else body.replaceChildren(make("p", "problem", problem ?? ""));
}

/** @param {Report} report */
function explain(report) {
  const rounds = new Map(report.rounds.map((round) => [round.n, round]));
  const isOld = !report.passes.length;
  const lines = isOld ? everything(report) : decisions(report, 0);
  for (const pass of report.passes) {
    const round = rounds.get(pass.round);
    if (round) lines.push(explainRound(round));
    rounds.delete(pass.round);
    lines.push(line("request", pass.began_ms, t("explainRequest", { count: pass.number, model: pass.model }), facts(pass)));
    lines.push(...decisions(report, pass.number));
  }
  const { stop_reason: reason, error } = report;
  const ending = error ? explainError(error) : explainEnding(reason ?? "") || t("explainComplete");
  lines.push(line("request", report.total_ms, ending, [error ? describeStatus(report.passes.at(-1)) : ""]));
  const total = [...amounts(report.usage), ...cost(report.cost), ...missingPrices(report)].join(" · ");
  return [
    ...(isOld ? [make("p", "small", t("explainOld"))] : []),
    make("ol", "timeline", ...lines),
    make("p", "small", `${t("explainTotal")}: ${total}`),
  ];
}

/** The calls and notices of an answer without passes. @param {Report} report */
function everything(report) {
  return [...report.calls.map(explainOne), ...report.notices.map(explainDecision)];
}

/**
 * The calls of a pass, and what Brain decided during it; 0 means before the first one.
 * @param {Report} report
 * @param {number} number
 */
function decisions(report, number) {
  const pass = report.passes[number - 1];
  const isEnding = Boolean(report.error) && number === report.passes.length;
  return [
    ...(pass?.is_prefill_refused ? [line("decision", null, t("explainPrefill"), [])] : []),
    ...(pass?.are_tools_refused ? [line("decision", null, t("explainTools"), [])] : []),
    ...report.calls.filter((call) => call.turn_pass === number).map(explainOne),
    ...(pass?.error && !isEnding
      ? [line("decision", pass.ended_ms, explainError(pass.error), [describeStatus(pass)])] : []),
    ...report.notices.filter((notice) => notice.turn_pass === number).map(explainDecision),
  ];
}

/** @param {Round} round */
function explainRound({ n, role, model, text, began_ms: began }) {
  const title = t("explainRound", { count: n, role: nameRole(role), model });
  return line("round", began ?? null, title, text ? [text] : []);
}

/** @param {Notice} notice */
function explainDecision(notice) {
  if (notice.code === "steered") return line("decision", null, t("added"), [notice.text]);
  return line("decision", null, explainNotice(notice), []);
}

/** @param {Pass | undefined} pass */
function describeStatus(pass) {
  return pass?.status ? t("explainStatus", { status: String(pass.status) }) : "";
}

/** @param {Call} call */
function explainOne({ name, params, began_ms: began, ms, by, outcome, reason, cached, approval }) {
  const given = JSON.stringify(params ?? {});
  const shown = given.length > PARAMS_LENGTH ? `${given.slice(0, PARAMS_LENGTH - 1)}…` : given;
  const decision = approval === "approved" || approval === "declined" || approval === "expired" ? t(approval) : "";
  return line("decision", began, `${name} ${shown}`, [
    ms === null ? "" : formatDuration(ms),
    by === "assist" ? t("chosenByBrain") : "",
    cached ? t("cached") : "",
    decision,
    outcome && outcome !== "ok" ? explainCall(outcome, reason ?? "") : "",
  ]);
}

/** @param {Pass} pass */
function facts(pass) {
  const { began_ms: began, ended_ms: ended, first_token_ms: first } = pass;
  return [
    ...amounts(pass),
    ended === null ? "" : formatDuration(ended - began),
    first === null ? "" : t("explainFirst", { time: formatDuration(first - began) }),
    ...cost(pass.cost),
  ];
}

/** @param {Use} use */
function amounts({ prompt_tokens: read, completion_tokens: written, reused_tokens: reused, estimated }) {
  const [all, own] = [read, written].map((count) => t("tokens", { count }));
  const about = (/** @type {string} */ amount) => estimated ? t("about", { amount }) : amount;
  return [
    t("explainRead", { amount: about(all) }),
    ...(reused ? [t("explainReused", { count: reused })] : []),
    t("explainWritten", { amount: about(own) }),
  ];
}

/** @param {number | null} amount */
function cost(amount) {
  return amount === null ? [] : [t("explainCost", { cost: formatCost(amount) })];
}

/** The models without a price, if others have one. @param {Report} report */
function missingPrices({ passes, cost: known }) {
  const unpriced = passes.filter((pass) => pass.cost === null && pass.prompt_tokens + pass.completion_tokens > 0);
  const models = [...new Set(unpriced.map(({ model }) => model))].join(", ");
  return known !== null && models ? [t("explainUnpriced", { models })] : [];
}

/**
 * @param {string} kind
 * @param {number | null} ms since the start of the answer
 * @param {string} title
 * @param {string[]} about
 */
function line(kind, ms, title, about) {
  const details = about.filter(Boolean).join(" · ");
  const what = make("div", "", make("p", "", title), ...(details ? [make("p", "small", details)] : []));
  return make("li", kind, make("span", "small when", ms === null ? "" : formatDuration(ms)), what);
}
