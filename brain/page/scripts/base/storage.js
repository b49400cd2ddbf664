// What this browser stores between visits. Where storage is forbidden, every value is the default.

const OURS = "brain."; // prefix of our keys; others belong to other apps on this host

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
   * @param {string | null} value null to delete it; a full storage stores nothing either
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

/** Shared by all tabs, without an end. */
export const sharedStorage = new PrefixedStorage(() => localStorage);

/** For this tab, until it is closed. */
export const tabStorage = new PrefixedStorage(() => sessionStorage);
