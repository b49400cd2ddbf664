// Files on this device: names and previews, dropped and pasted files, and the files in a folder.

/** @typedef {import("./types.js").Attached} Attached */
/** @typedef {{ folder: string, files: File[] | null }} Part `folder` empty for a file; `files` null when unreadable */

const MOST = 50, FOLDERS = 100; // limits of files and folders that are read in one folder

/** @type {FinalizationRegistry<string>} */
const addresses = new FinalizationRegistry((address) => URL.revokeObjectURL(address)); // no longer shown

/**
 * A file on this device, as an attachment.
 * @param {File} file
 * @returns {Attached}
 */
export function makeAttachment(file) {
  const { type, size } = file, preview = type.startsWith("image/") ? URL.createObjectURL(file) : null;
  const one = { name: cleanName(file), type, size, file, id: null, preview };
  if (preview) addresses.register(one, preview);
  return one;
}

/** The name that the server will use: without folders, on one line, up to 200 characters. @param {File} file */
function cleanName({ name }) {
  const line = (name.split(/[/\\]/).at(-1) ?? "").replace(/[\p{C}\p{Z}]+/gu, " ").trim();
  return [...line].slice(0, 200).join("") || "file";
}

/**
 * @param {DataTransfer} data empty after its event
 * @returns {Promise<Part[]>}
 */
export function partsOf(data) {
  const items = [...data.items].filter(({ kind }) => kind === "file");
  return Promise.all(items.map((item) => {
    const entry = item.webkitGetAsEntry(), file = item.getAsFile();
    if (entry?.isDirectory) return partOf(/** @type {FileSystemDirectoryEntry} */ (entry));
    return { folder: "", files: file && [file] };
  }));
}

/** @param {FileSystemDirectoryEntry} folder @returns {Promise<Part>} */
async function partOf(folder) {
  return { folder: folder.name, files: await filesIn(folder).catch(unlessUnreadable) };
}

/** The visible files, sorted by name. @param {FileSystemDirectoryEntry} folder */
async function filesIn(folder) {
  const ahead = [folder];
  /** @type {FileSystemFileEntry[]} */
  const found = [];
  for (let looked = 0; looked < Math.min(ahead.length, FOLDERS) && found.length < MOST; looked += 1) {
    for (const entry of await entriesIn(ahead[looked])) {
      if (entry.name.startsWith(".")) continue;
      if (entry.isDirectory) ahead.push(/** @type {FileSystemDirectoryEntry} */ (entry));
      else found.push(/** @type {FileSystemFileEntry} */ (entry));
    }
  }
  found.sort((one, other) => one.fullPath.localeCompare(other.fullPath));
  return Promise.all(found.slice(0, MOST).map(fileOf));
}

/** The reader returns entries in parts, and an empty part at the end. @param {FileSystemDirectoryEntry} folder */
async function entriesIn(folder) {
  const reader = folder.createReader();
  /** @type {FileSystemEntry[]} */
  const found = [];
  for (;;) {
    /** @type {FileSystemEntry[]} */
    const some = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
    found.push(...some);
    if (!some.length || found.length > MOST + FOLDERS) return found;
  }
}

/** @param {FileSystemFileEntry} entry @returns {Promise<File>} */
function fileOf(entry) {
  return new Promise((resolve, reject) => entry.file(resolve, reject));
}

/** @param {Error} error */
function unlessUnreadable(error) {
  if (error instanceof DOMException) return null;
  throw error;
}
