// Ground: the files of what was dropped or pasted. A folder stands for the files in it.

const MOST = 50, FOLDERS = 100; // files of a folder that are looked for, and folders in it where that is done

/** @typedef {{ folder: string, files: File[] | null }} Part `folder` empty for a file; `files` null when unreadable */

/**
 * @param {DataTransfer} data it forgets everything when its event is over
 * @returns {Promise<Part[]>}
 */
export function partsOf(data) {
  const items = [...data.items].filter(({ kind }) => kind === "file");
  return Promise.all(items.map((item) => {
    const entry = item.webkitGetAsEntry(), file = item.getAsFile();
    return entry?.isDirectory ? partOf(/** @type {FileSystemDirectoryEntry} */ (entry)) : { folder: "", files: file && [file] };
  }));
}

/** @param {FileSystemDirectoryEntry} folder @returns {Promise<Part>} */
async function partOf(folder) {
  return { folder: folder.name, files: await filesIn(folder).catch(unlessUnreadable) };
}

/** Those that are not hidden, by their names. @param {FileSystemDirectoryEntry} folder */
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

/** They come some at a time, until none are left. @param {FileSystemDirectoryEntry} folder */
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
