// Ground: what this browser keeps between visits. Where it may keep nothing, all is as it was at first.

const OURS = "brain."; // what begins so; the rest is of others who have this host

class Kept {
  /** @param {() => Storage} open */
  constructor(open) {
    this.storage = unlessForbidden(open) ?? null;
  }

  /** @param {string} name */
  get(name) {
    return this.storage?.getItem(OURS + name) ?? null;
  }

  /**
   * @param {string} name
   * @param {string | null} value null to keep nothing; so it is, too, where there is no room for it
   */
  put(name, value) {
    this.storage?.removeItem(OURS + name);
    if (value !== null) unlessForbidden(() => this.storage?.setItem(OURS + name, value));
  }

  /** Forgets everything. */
  clear() {
    for (const name of Object.keys(this.storage ?? {})) if (name.startsWith(OURS)) this.storage?.removeItem(name);
  }
}

/**
 * @template T
 * @param {() => T} act
 */
function unlessForbidden(act) {
  try {
    return act();
  } catch (error) {
    if (!(error instanceof DOMException)) throw error; // the person wants nothing kept, or there is no room
  }
}

/** For all tabs, until somebody changes it. */
export const kept = new Kept(() => localStorage);

/** For this tab, as long as it is there. */
export const keptHere = new Kept(() => sessionStorage);
