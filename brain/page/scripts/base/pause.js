// A wait that can be aborted.

/**
 * Rejects with the signal's reason if the signal is or becomes aborted.
 * @param {number} ms
 * @param {AbortSignal} [signal]
 * @returns {Promise<void>}
 */
export function pause(ms, signal) {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", giveUp);
      resolve();
    }, ms);
    function giveUp() {
      clearTimeout(timer);
      reject(signal?.reason);
    }
    signal?.addEventListener("abort", giveUp, { once: true });
  });
}
