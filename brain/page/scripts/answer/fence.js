// Answer: code that is still written, of which no HTML is made any more: where it ends.

/** What stands behind a fence. */
export class Fence {
  #closing;
  #perhaps;
  #inLine;

  /**
   * @param {string} marks what closes it, alone on a line: these, or more of them
   * @param {string} before its text so far
   */
  constructor(marks, before) {
    this.#closing = new RegExp(`(?<=^|\\n) {0,3}${marks[0]}{${marks.length},}[ \\t]*(?:\\n|$)`);
    this.#perhaps = new RegExp(`(?<=^|\\n) {0,3}${marks[0]}{0,99}[ \\t]{0,99}$`);
    this.#inLine = !before.endsWith("\n");
  }

  /**
   * What of a text is code, how much of it is known, and whether the code ends there.
   * @param {string} text
   * @param {boolean} last whether nothing follows
   */
  read(text, last) {
    const before = this.#inLine ? "x" : "", line = before + text; // no fence begins within a line
    const found = this.#closing.exec(line), closed = Boolean(found && (last || found[0].endsWith("\n")));
    const held = last ? -1 : line.search(this.#perhaps);
    const end = found?.index ?? (held < 0 ? line.length : held);
    const code = line.slice(before.length, end);
    if (code) this.#inLine = !code.endsWith("\n");
    return { code, known: (closed && found ? end + found[0].length : end) - before.length, closed };
  }
}
