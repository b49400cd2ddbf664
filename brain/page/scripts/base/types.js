// The shapes of server data, for readers and the type checker. This file contains no code.

/**
 * @typedef {{ name: string, stand_in: boolean, local: boolean, assist: boolean, default: boolean }} Model
 * @typedef {{ name: string, models: Record<string, string>, default: boolean }} Strategy `models` by role
 * @typedef {{ files: number, file_bytes: number, body_bytes: number, message_characters: number }} Limits
 * @typedef {{ user: string, keys: boolean, models: Model[], strategies: Strategy[],
 *   specialists: Specialist[], recall: boolean, limits: Limits, version: string }} Start
 * @typedef {{ id: string, title?: string, url?: string }} Citation
 *
 * A file for the next message: from this device, or already in the conversation.
 * @typedef {{ name: string, type: string, size: number, file: File | null, id: number | null,
 *   preview: string | null }} Attached
 *
 * @typedef {{ id: string, title: string, created: string, updated: string, messages: number, sources: string[],
 *   running: boolean, private?: boolean, found?: string }} Listed
 * @typedef {"personal" | "preferences" | "knowledge" | "general"} Category
 * @typedef {{ id: string, kind: "fact" | "memory", text: string, created: string, updated: string,
 *   category: Category | null, mutable: boolean, conversation_id: string | null, message_id: string | null,
 *   outside: boolean, was: { text: string, until: string }[], count?: number }} Item
 * @typedef {{ name: string, description: string, examples: string[], approval: "never" | "always" | "depends",
 *   activates_on: string[], available: boolean, unavailable_reason?: string, origin: string }} Specialist
 *
 * A stored conversation. Later versions of the server may add kinds of parts.
 * @typedef {{ id: number, name: string, type: string, size: number }} StoredFile
 * @typedef {{ completion_tokens: number, estimated: boolean }} Usage
 * @typedef {"asked" | "approved" | "declined" | "expired"} Approval a person's decision, if the call needed one
 * @typedef {{ call_id: string, name: string, by?: string }} Call `by`: `assist` if Brain chose it
 * @typedef {Call & { text: string, citations?: Citation[], cached?: boolean, ms?: number, approval?: Approval }} Result
 * @typedef {Call & { reason: string, ms?: number, approval?: Approval }} Failed
 * @typedef {Result & { outcome: null } | Failed & { outcome: string }} Outcome
 * @typedef {{ n: number, of: number, role: string, model: string, text?: string, ms?: number }} Round `ms` if stored
 * @typedef {Outcome & { type: "call", params: object | null, round?: number }} CallPart
 * @typedef {{ type: "text" | "thinking" | "steered", text: string, round?: number }
 *   | { type: "notice", code: string, text: string, round?: number } | CallPart} Part
 * @typedef {{ id: string, role: "user", time: string, parts: Part[], files: number[],
 *   source: string }} StoredQuestion `source`: `task` for a run of a task, `report` for a report on tasks
 * @typedef {{ id: string | null, role: "assistant", time: string | null, parts: Part[], model: string,
 *   strategy?: string, rounds?: Round[],
 *   state: "running" | "complete" | "cancelled" | "error" | "interrupted", stop_reason?: string, error?: string,
 *   message?: string, recoverable?: boolean, usage?: Usage, total_ms?: number }} StoredAnswer
 * @typedef {{ id: string, title: string, running: boolean, private?: boolean, turn_id?: string, files: StoredFile[],
 *   earlier: string | null, messages: (StoredQuestion | StoredAnswer)[] }} StoredConversation
 *
 * A background task; fields without a value are missing.
 * @typedef {"pending" | "running" | "waiting" | "succeeded" | "failed" | "canceled"} TaskState
 * @typedef {{ call_id: string, name: string, params: object, text?: string }} TaskApproval
 * @typedef {{ id: string, title: string, prompt: string, profile: string, state: TaskState, conversation_id: string,
 *   work_id: string, created: string, changed: string, time_zone: string, run: number, next_run?: string,
 *   every?: string, schedule?: string, start?: string, paused?: boolean, turn_id?: string, activity?: string,
 *   approval?: TaskApproval, result?: string, summary?: string, reason?: string, private?: boolean }} Task
 * @typedef {{ task_id: string, title: string, state: TaskState, text?: string, conversation_id: string,
 *   kind: "state" | "result" | "failure" | "skipped" | "approval" | "paused" }} TaskNews an event about a task
 * @typedef {{ conversation_id: string, turn_id: string }} Report a turn that reports on tasks
 *
 * The events of a turn that the page shows.
 * @typedef {object} Events
 * @property {{ turn_id?: string, model: string, strategy?: string }} turn_start
 * @property {{ text: string, isComplete?: boolean }} token `isComplete` for stored text
 * @property {{ text: string }} thinking
 * @property {Round} round
 * @property {Call & { expires_at: string, text?: string }} approval_required
 * @property {Call} specialist_start
 * @property {{ call_id: string, text: string, fraction?: number }} specialist_progress
 * @property {Result} specialist_result
 * @property {Failed & { code: string }} specialist_error
 * @property {{ code: string, text: string, fraction?: number }} notice
 * @property {{ to: number, text: string }} rewind what came after event `to` is dropped; `text` is the answer so far
 * @property {{ task_id: string }} task a task was created or changed
 * @property {Usage} usage
 * @property {{ code: string, message: string, recoverable: boolean }} error
 * @property {{ stop_reason: string, message_id: string | null, text: string, total_ms?: number }} done
 */

/**
 * @template {keyof Events} N
 * @typedef {{ name: N, data: Events[N], raw: string, number?: number }} EventOf `raw` is the JSON as it was received;
 *   `number` of the event in its turn, if it is live
 */

/** @typedef {{ [N in keyof Events]: EventOf<N> }[keyof Events]} TurnEvent */

export {};
