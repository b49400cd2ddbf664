// The dialogs that create a task and change its schedule. A schedule is shown with its next times before it is used.

import { addressOf } from "../base/address.js";
import { openDialog } from "../base/dialog.js";
import { make, makeButton } from "../base/dom.js";
import { Refused, errorText } from "../base/server.js";
import { changeTask, createTask, previewTask } from "../base/tasks.js";
import { formatTime, nameWeekday, t } from "../base/texts.js";
import { isPrivate } from "./privacy.js";
import { DAYS, describeSchedule, readRule, writeRule } from "./schedule.js";

/**
 * @typedef {import("../base/types.js").Task} Task
 * @typedef {{ when?: string, every?: string }} Schedule
 */

const PROMPT_LENGTH = 8000, TITLE_LENGTH = 100, EVERY_LENGTH = 500;
let count = 0;

/**
 * Opens the dialog for a new task.
 * @param {{ prompt?: string, conversation: string | null, created: (task: Task) => void,
 *   left?: (prompt: string) => void }} how `left`: called when the person leaves without a task
 */
export function openNewTask({ prompt: given = "", conversation, created, left }) {
  const prompt = make("textarea"), title = make("input"), profile = make("select"), tell = make("input");
  prompt.rows = 3;
  prompt.required = true;
  prompt.dir = title.dir = "auto";
  prompt.maxLength = PROMPT_LENGTH;
  prompt.value = given;
  prompt.placeholder = t("taskPromptShort");
  title.type = "text";
  title.maxLength = TITLE_LENGTH;
  profile.append(new Option(t("profileStandard"), "standard"), new Option(t("profileExpert"), "expert"));
  tell.type = "checkbox";
  tell.checked = true;
  const schedule = new ScheduleFields(null);
  const form = new StepForm({ label: t("createTask"), fields: [
    new Field("prompt", t("taskPrompt"), prompt),
    new Field("title", t("taskTitle"), title),
    ...schedule.fields,
    new Field("profile", t("profile"), profile),
  ], after: [make("label", "check", tell, t("tellResult"))], schedule, act: async () => {
    const task = await createTask(fields());
    isCreated = true;
    dialog.close();
    created(task);
  }, preview: () => previewTask(fields()) });
  const fields = () => ({
    prompt: prompt.value,
    time_zone: Intl.DateTimeFormat().resolvedOptions().timeZone,
    profile: profile.value,
    ...(title.value.trim() ? { title: title.value } : {}),
    ...(tell.checked ? {} : { tell: "never" }),
    ...(conversation ? { conversation_id: conversation } : {}),
    ...(isPrivate() ? { private: true } : {}),
    ...schedule.value,
  });
  let isCreated = false;
  const dialog = openDialog(t("newTask"), [form.node]);
  dialog.addEventListener("close", () => { if (!isCreated) left?.(prompt.value); });
  prompt.focus();
}

/** Opens the dialog that changes when a task runs. @param {Task} task */
export function openTaskTime(task) {
  const schedule = new ScheduleFields(task);
  const change = () => schedule.value.every === undefined ? { ...schedule.value, every: "" } : schedule.value;
  const form = new StepForm({ label: t("save"), fields: schedule.fields, after: [], schedule, act: async () => {
    await changeTask(task.id, change());
    dialog.close();
  }, preview: () => previewTask({ prompt: task.prompt, time_zone: task.time_zone, ...schedule.value }) });
  const dialog = openDialog(t("changeTime"), [make("p", "", task.title), form.node], { className: "small-dialog" });
}

/** A labelled input with a line for its problem. */
class Field {
  /**
   * @param {string} name as the server calls it
   * @param {string} label
   * @param {HTMLInputElement | HTMLTextAreaElement | HTMLSelectElement} input
   */
  constructor(name, label, input) {
    this.name = name;
    this.label = label;
    this.input = input;
    this.problem = make("span", "problem");
    this.problem.id = `field-${(count += 1)}`;
    this.problem.setAttribute("role", "alert");
    input.setAttribute("aria-describedby", this.problem.id);
    this.node = make("div", "field", make("label", "field", label, input), this.problem);
  }

  /** @param {string} text */
  complain(text) {
    this.problem.textContent = text;
    this.input.setAttribute("aria-invalid", String(Boolean(text)));
  }
}

/** When a task runs: now, once, or repeatedly. */
class ScheduleFields {
  #kind = make("select");
  #once = makeInput("datetime-local");
  #time = makeInput("time");
  #day = make("select");
  #words = makeInput("text");

  /** @param {Task | null} task null for a new one, which can also run now */
  constructor(task) {
    const names = { now: t("taskNow"), once: t("taskOnce"), daily: t("taskDaily"), workdays: t("taskWorkdays"),
      weekly: t("taskWeekly"), words: t("taskWords") };
    for (const [kind, name] of Object.entries(names)) {
      if (kind !== "now" || !task) this.#kind.append(new Option(name, kind));
    }
    this.#day.append(...DAYS.map((day, n) => new Option(nameWeekday(n), day)));
    this.#time.value = "08:00";
    this.#words.maxLength = EVERY_LENGTH;
    this.#words.placeholder = "every 2 hours";
    if (task) this.#fill(task);
    this.#day.setAttribute("aria-label", t("weekday"));
    this.fields = [
      new Field("", t("taskWhen"), this.#kind),
      new Field("when", t("taskTime"), this.#once),
      new Field("", t("weekday"), this.#day),
      new Field("every", t("timeOfDay"), this.#time),
      new Field("every", t("taskWords"), this.#words),
    ];
    this.#kind.addEventListener("change", () => this.#show());
    this.#show();
  }

  /** The fields of a request. @returns {Schedule} */
  get value() {
    const kind = this.#kind.value;
    if (kind === "once") return { when: this.#once.value };
    if (kind === "words") return { every: this.#words.value };
    if (kind === "now") return {};
    const repeats = /** @type {"daily" | "workdays" | "weekly"} */ (kind);
    return { every: writeRule({ kind: repeats, day: this.#day.value, time: this.#time.value }) };
  }

  /** @param {Task} task */
  #fill({ every = "", start, time_zone: timeZone }) {
    const rule = readRule(every);
    this.#kind.value = rule ? rule.kind : every ? "words" : "once";
    this.#words.value = every;
    if (rule) [this.#day.value, this.#time.value] = [rule.day, rule.time];
    const at = start && new Date(start).toLocaleString("sv", { timeZone }); // such as 2027-01-31 08:00:00
    if (at) this.#once.value = at.slice(0, 16).replace(" ", "T");
  }

  #show() {
    const kind = this.#kind.value, isAtTime = ["daily", "workdays", "weekly"].includes(kind);
    const [, once, day, time, words] = this.fields;
    const shown = new Map([[once, kind === "once"], [day, kind === "weekly"], [time, isAtTime], [words, kind === "words"]]);
    for (const [field, isShown] of shown) {
      field.node.hidden = !isShown;
      field.input.disabled = !isShown;
    }
  }
}

/** A form that shows when a schedule runs, and then acts. A change after that shows it again. */
class StepForm {
  #fields;
  #schedule;
  #act;
  #preview;
  #problem = make("p", "problem");
  #about = make("div", "schedule");
  #yes;
  #label;
  #isSeen = false; // the person saw what the schedule means

  /**
   * @param {{ label: string, fields: Field[], after: Node[], schedule: ScheduleFields, act: () => Promise<void>,
   *   preview: () => Promise<{ schedule: string, next: string[] }> }} form
   */
  constructor({ label, fields, after, schedule, act, preview }) {
    this.#fields = fields;
    this.#schedule = schedule;
    this.#act = act;
    this.#preview = preview;
    this.#label = label;
    this.#yes = make("button", "primary");
    this.#problem.setAttribute("role", "alert");
    this.#about.setAttribute("role", "status");
    const cancel = makeButton(t("cancel"), () => this.node.closest("dialog")?.close());
    this.node = make("form", "fact task-form", ...fields.map(({ node }) => node), ...after, this.#about, this.#problem,
      make("div", "row end", cancel, this.#yes));
    this.node.noValidate = true;
    this.node.addEventListener("input", () => this.#reset());
    this.node.onsubmit = (event) => {
      event.preventDefault();
      this.#submit();
    };
    this.#reset();
  }

  #reset() {
    this.#isSeen = !Object.keys(this.#schedule.value).length;
    this.#yes.textContent = this.#isSeen ? this.#label : t("showTimes");
    this.#about.replaceChildren();
    this.#complain("", "");
  }

  async #submit() {
    const empty = this.#fields.find(({ input }) => !input.disabled && input.value.trim() === ""
      && (input.required || input.matches("[type=datetime-local], [type=time], .task-words")));
    if (empty) return this.#complain(empty.name, t("needsValue"), empty);
    this.#yes.disabled = true;
    try {
      if (this.#isSeen) await this.#act();
      else this.#show(await this.#preview());
    } catch (error) {
      const text = errorText(error), { field = "", task = "" } = error instanceof Refused ? error : {};
      this.#complain(field, text);
      if (task) this.#about.replaceChildren(this.#linkTo(task));
    }
    this.#yes.disabled = false;
  }

  /** A link to the task that a new one repeats. @param {string} id */
  #linkTo(id) {
    const link = make("a", "", t("existingTask"));
    link.href = addressOf(id.replace(/^task/, "work"));
    link.onclick = () => this.node.closest("dialog")?.close();
    return link;
  }

  /** @param {{ schedule: string, next: string[] }} found */
  #show({ schedule, next }) {
    const times = next.map((time) => make("li", "", formatTime(new Date(time))));
    const words = describeSchedule(this.#schedule.value.every ?? "", schedule);
    this.#about.replaceChildren(...(words ? [make("p", "", words)] : []), make("p", "small", t("nextTimes")), make("ol", "", ...times));
    this.#isSeen = true;
    this.#yes.textContent = this.#label;
    this.#yes.focus();
  }

  /** @param {string} name of the field @param {string} text @param {Field} [of] */
  #complain(name, text, of) {
    const found = of ?? this.#fields.find((field) => name && field.name === name && !field.input.disabled);
    for (const field of this.#fields) field.complain(field === found ? text.replace(/`\w+`/, `“${field.label}”`) : "");
    this.#problem.textContent = found ? "" : text;
    if (text) found?.input.focus();
  }
}

/** @param {string} type */
function makeInput(type) {
  const input = make("input", type === "text" ? "task-words" : "");
  input.type = type;
  return input;
}
