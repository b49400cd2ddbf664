// Ground: the shapes of what the server says, for those who read and for the checker; there is nothing to run.

/**
 * @typedef {{ name: string, stand_in: boolean, sees_images: boolean, default: boolean }} Model
 * @typedef {{ files: number, file_bytes: number, body_bytes: number, message_characters: number }} Limits
 * @typedef {{ user: string, keys: boolean, models: Model[], limits: Limits, version: string }} Start
 * @typedef {{ id: string, title?: string, url?: string }} Citation
 */

export {};
