// The URL of a conversation: `#/c/ID`. A new conversation has none.

/** @param {string} id */
export function addressOf(id) {
  return `#/c/${encodeURIComponent(id)}`;
}

/** The conversation id in the URL, or null. */
export function idInAddress() {
  const found = location.hash.match(/^#\/c\/(.+)$/)?.[1];
  if (!found) return null;
  try {
    return decodeURIComponent(found);
  } catch (error) {
    if (error instanceof URIError) return null;
    throw error;
  }
}
