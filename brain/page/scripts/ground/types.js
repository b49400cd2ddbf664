// Ground: the shapes of what the server says, for those who read and for the checker; there is nothing to run.

/**
 * @typedef {{ name: string, stand_in: boolean, default: boolean }} Model
 * @typedef {{ files: number, file_bytes: number, body_bytes: number, message_characters: number }} Limits
 * @typedef {{ user: string, keys: boolean, models: Model[], specialists: Specialist[], recall: boolean,
 *   limits: Limits, version: string }} Start
 * @typedef {{ id: string, title?: string, url?: string }} Citation
 *
 * A file to go with a message: one of this machine, or one that the conversation has.
 * @typedef {{ name: string, type: string, size: number, file: File | null, id: number | null,
 *   preview: string | null }} Attached
 *
 * @typedef {{ id: string, title: string, created: string, updated: string, messages: number, sources: string[],
 *   running: boolean, found?: string }} Listed
 * @typedef {"personal" | "preferences" | "knowledge" | "general"} Category
 * @typedef {{ id: string, kind: "fact" | "memory", text: string, created: string, updated: string,
 *   category: Category | null, mutable: boolean, conversation_id: string | null, message_id: string | null,
 *   outside: boolean, was: { text: string, until: string }[] }} Item
 * @typedef {{ name: string, description: string, examples: string[], approval: "never" | "always" | "depends",
 *   activates_on: string[], available: boolean, unavailable_reason?: string, origin: string }} Specialist
 *
 * A conversation as it is kept; later versions of the server may know further kinds of parts.
 * @typedef {{ id: number, name: string, type: string, size: number }} KeptFile
 * @typedef {{ completion_tokens: number, estimated: boolean }} Usage
 * @typedef {"asked" | "approved" | "declined" | "expired"} Approval what came of asking a person, if one was asked
 * @typedef {{ call_id: string, name: string }} Call
 * @typedef {Call & { text: string, citations?: Citation[], cached?: boolean, ms?: number, approval?: Approval }} Result
 * @typedef {Call & { reason: string, ms?: number, approval?: Approval }} Failed
 * @typedef {Result & { outcome: null } | Failed & { outcome: string }} Outcome
 * @typedef {Outcome & { type: "call", params: object | null }} CallPart
 * @typedef {{ type: "text" | "thinking" | "steered", text: string } | { type: "notice", code: string, text: string }
 *   | CallPart} Part
 * @typedef {{ id: string, role: "user", time: string, parts: Part[], files: number[] }} KeptQuestion
 * @typedef {{ id: string | null, role: "assistant", time: string | null, parts: Part[], model: string,
 *   state: "running" | "complete" | "cancelled" | "error" | "interrupted", stop_reason?: string, error?: string,
 *   message?: string, recoverable?: boolean, usage?: Usage, total_ms?: number }} KeptAnswer
 * @typedef {{ id: string, title: string, running: boolean, turn_id?: string, files: KeptFile[], earlier: string | null,
 *   messages: (KeptQuestion | KeptAnswer)[] }} Kept
 *
 * What a turn tells, as far as it is shown.
 * @typedef {object} Events
 * @property {{ model: string }} turn_start
 * @property {{ text: string, whole?: boolean }} token `whole` for one that was kept
 * @property {{ text: string }} thinking
 * @property {Call & { expires_at: string, text?: string }} approval_required
 * @property {Call} specialist_start
 * @property {{ call_id: string, text: string, fraction?: number }} specialist_progress
 * @property {Result} specialist_result
 * @property {Failed & { code: string }} specialist_error
 * @property {{ code: string, text: string }} notice
 * @property {Usage} usage
 * @property {{ code: string, message: string, recoverable: boolean }} error
 * @property {{ stop_reason: string, message_id: string | null, text: string, total_ms?: number }} done
 */

/**
 * @template {keyof Events} N
 * @typedef {{ name: N, data: Events[N], raw: string }} EventOf `raw` is the JSON as it came
 */

/** @typedef {{ [N in keyof Events]: EventOf<N> }[keyof Events]} TurnEvent */

export {};
