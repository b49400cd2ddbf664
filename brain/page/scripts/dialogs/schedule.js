// Recurrences that the page can describe in the language of the person.

import { nameWeekday, t } from "../base/texts.js";

export const DAYS = ["MO", "TU", "WE", "TH", "FR", "SA", "SU"];
const WORKDAYS = DAYS.slice(0, 5).join(",");
const AT_A_TIME = /^FREQ=(DAILY|WEEKLY);(?:BYDAY=([A-Z,]+);)?BYHOUR=(\d+);BYMINUTE=(\d+)(?:;BYSECOND=0)?$/;

/** @typedef {{ kind: "daily" | "workdays" | "weekly", day: string, time: string }} Recurrence `time` such as 08:00 */

/** @param {Recurrence} recurrence @returns {string} an RRULE */
export function writeRule({ kind, day, time }) {
  const [hour, minute] = time.split(":").map(Number);
  const days = { daily: "FREQ=DAILY", workdays: `FREQ=WEEKLY;BYDAY=${WORKDAYS}`, weekly: `FREQ=WEEKLY;BYDAY=${day}` };
  return `${days[kind]};BYHOUR=${hour};BYMINUTE=${minute};BYSECOND=0`;
}

/** @param {string} rule @returns {Recurrence | null} null for any other recurrence */
export function readRule(rule) {
  const [, often, day = "", hour, minute] = rule.match(AT_A_TIME) ?? [];
  if (!often || (often === "DAILY") === Boolean(day) || (day !== WORKDAYS && !DAYS.includes(day) && day)) return null;
  const kind = often === "DAILY" ? "daily" : day === WORKDAYS ? "workdays" : "weekly";
  return { kind, day: kind === "weekly" ? day : DAYS[0], time: `${hour.padStart(2, "0")}:${minute.padStart(2, "0")}` };
}

/**
 * A schedule in words.
 * @param {string} rule empty for a task that runs once
 * @param {string} words those of the server, in English
 * @param {string} [zone] the time zone of its times, if it is another one than the person's
 */
export function describeSchedule(rule, words, zone = "") {
  const found = readRule(rule);
  if (!rule) return "";
  if (!found) return words;
  const { kind, day } = found, time = zone ? `${found.time} (${zone})` : found.time;
  if (kind === "weekly") return t("weeklyAt", { day: nameWeekday(DAYS.indexOf(day)), time });
  return t(kind === "daily" ? "dailyAt" : "workdaysAt", { time });
}
