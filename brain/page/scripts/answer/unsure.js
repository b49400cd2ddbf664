// Answer: the end of a text that is still written, of which nobody knows yet what it is: a link, a table, or words.

const LOOKS_BACK = 400; // characters

/** What a line may begin with, alone up to the end of the text. */
const BEGINS = [
  "[-+*_=#`~|:$ \\t>]+", // an item, a heading, a line, a fence, a quotation
  "(?:[-+*]|\\d{1,9}[.)]?)[ \\t]*(?:\\[[^\\]\\n]?\\]?[ \\t]*)?", // an item, perhaps a task
  "[`~]{3,}[^`\\n]*", // the language of code
  "\\|[^\\n]*[^-| :\\t\\n][^\\n]*(?:\\n[ \\t|:-]*)?", // a row, or the head of a table, with the line below it
  "\\[[^\\]\\n]+\\]:[^\\n]*", // an address that is defined
];

/** What may stand in a line, and is not closed yet. */
const OPEN = [
  "!?\\[[^\\[\\]\\n]*(?:\\](?:[(\\[][^)\\]\\n]*)?)?", // a link
  "(?<=^(?:[^`\\n]*`[^`\\n]*`)*[^`\\n]*)`[^`\\n]*", // code
  "\\*+", // stress
  "(?<![*\\w\\\\])\\*(?=[^\\s*])[^*\\n]*\\*?",
  "(?<![\\w\\\\])__?(?=[^\\s_])[^_\\n]*_{0,2}",
  "(?<!~)~~?(?:(?=[^\\s~])[^~\\n]*~{0,2})?",
  "\\\\(?:\\((?:[^\\\\\\n]|\\\\(?!\\)))*\\\\?)?", // a formula
  "<\\S*", // an address
];

const UNSURE = new RegExp(`(?:^[ \\t>]*(?:${BEGINS.join("|")})|${OPEN.join("|")})$(?![^])`, "m");
const SURE = /^[\p{L}\p{M}\p{N} ,;:.?!'"%/()…–—’“”-]*/u;

/** How many characters at the end of a text may be something else than what they are. @param {string} text */
export function unsure(text) {
  const end = text.slice(-LOOKS_BACK), found = UNSURE.exec(end);
  return found ? end.length - found.index : 0;
}

/**
 * How many characters of what follows are words and nothing else: of what goes on within a line, or begins the text.
 * @param {string} before
 * @param {string} text
 */
export function sure(before, text) {
  if (before ? unsure(before) : !/^\s*\p{L}/u.test(text)) return 0;
  return SURE.exec(text)?.[0].length ?? 0;
}
