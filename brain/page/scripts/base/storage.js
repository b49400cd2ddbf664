// What this browser stores between visits. Where storage is forbidden, every value is the default.

const OURS = "brain."; // prefix of Brain's keys; other apps on this host may have keys, too

class PrefixedStorage {
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
   * @param {string | null} value null deletes it; a full storage ignores it
   */
  put(name, value) {
    this.storage?.removeItem(OURS + name);
    if (value !== null) unlessForbidden(() => this.storage?.setItem(OURS + name, value));
  }

  /** Deletes everything that the page stored. */
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
    if (!(error instanceof DOMException)) throw error; // storage is forbidden or full
  }
}

/** Shared by all tabs; never expires. */
export const sharedStorage = new PrefixedStorage(() => localStorage);

/** For this tab, until it closes. */
export const tabStorage = new PrefixedStorage(() => sessionStorage);
