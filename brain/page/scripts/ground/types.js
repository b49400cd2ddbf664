// Ground: the shapes of what the server says, for those who read and for the checker; there is nothing to run.

/**
 * @typedef {{ name: string, stand_in: boolean, default: boolean }} Model
 * @typedef {{ files: number, file_bytes: number, body_bytes: number, message_characters: number,
 *   markdown_texts: number, markdown_bytes: number, markdown_open: number }} Limits
 * @typedef {{ user: string, keys: boolean, models: Model[], specialists: Specialist[], limits: Limits,
 *   version: string }} Start
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
 *   outside: boolean, was: { text: string, until: string }[], against: string[] }} Item
 * @typedef {{ name: string, description: string, examples: string[], approval: "never" | "always" | "depends",
 *   activates_on: string[], available: boolean, unavailable_reason?: string, origin: string }} Specialist
 */

export {};
