// Ground: what this browser keeps between visits. Where it may keep nothing, all is as it was at first.

class Kept {
  /** @param {() => Storage} open */
  constructor(open) {
    this.storage = opened(open);
  }

  /** @param {string} name */
  get(name) {
    return this.storage?.getItem(`brain.${name}`) ?? null;
  }

  /**
   * @param {string} name
   * @param {string | null} value null to keep nothing
   */
  put(name, value) {
    if (value === null) this.storage?.removeItem(`brain.${name}`);
    else this.storage?.setItem(`brain.${name}`, value);
  }
}

/** @param {() => Storage} open */
function opened(open) {
  try {
    return open();
  } catch (error) {
    if (error instanceof DOMException) return null; // the person wants nothing kept
    throw error;
  }
}

/** For all tabs, until somebody changes it. */
export const kept = new Kept(() => localStorage);

/** For this tab, as long as it is there. */
export const keptHere = new Kept(() => sessionStorage);
