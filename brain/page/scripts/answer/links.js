// Links in Markdown: only web and mail addresses; they show their host if the label may name another one.

/**
 * @typedef {import("./markdown.js").Token} Token
 * @typedef {import("./markdown.js").Env} Env
 * @typedef {(type: string, tag: string, nesting: -1 | 0 | 1, text: string, attrs?: [string, string][]) => Token} Make
 */

const LABEL = 300; // characters: a longer label always shows the host
const SHARE = 10, SPARE = 10_000, LINK = 100; // limit of all URLs: SHARE × text length + SPARE; each costs LINK more
// A URL without a user name.
const WEB = /^https?:\/\/([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?(?:[/?#]|$)/i;
const MAIL = /^mailto:([^\s/?#@]+@[A-Za-z0-9.-]+)(?:\?|$)/i;
const SLASHES = "/\\\\\\u2044\\u2215"; // and look-alikes
const ADDRESS = new RegExp(`(?:[\\p{L}\\p{N}]:[${SLASHES}]+|^[${SLASHES}]{2,}(?=[\\p{L}\\p{N}]))`
  + "(\\[[0-9a-f:.]+\\]|[\\p{L}\\p{N}_.。@-]*)", "iu");
const WORD = "[\\p{L}\\p{N}_-]", DOT = "[.。@]", END = `(?:\\p{L}${WORD}+|\\d+\\.\\d+\\.\\d+)`;
const HOST = new RegExp(`(?:${WORD}|@)+(?:${DOT}${WORD}+)*${DOT}${END}|${WORD}*\\p{L}${WORD}*(?=:\\d)`, "gu");
const ENDS = "com|org|net|edu|gov|info|io|app|dev|example|[a-z]{2}"; // host endings
const LIKE_A_DOT = new RegExp(`(?:[,‚·•‧∙⋅・ꞏ\\u0323]|[.。]\\s+)(?=(?:${ENDS})(?![\\p{L}\\p{N}]))`, "gu");

/** Whether links to this URL are allowed. @param {string} address */
export function isAddress(address) {
  return address.length <= 2000 && (WEB.test(address) || MAIL.test(address));
}

/**
 * Turns images into links, and adds the host after a label that may name another one.
 * @param {Token[]} tokens of one line
 * @param {Env} env
 * @param {Make} make
 * @returns {Token[]}
 */
export function showHosts(tokens, env, make) {
  /** @type {Token[]} */
  const found = [];
  let address = "", label = "", hasFormula = false, isCitation = false;
  const open = (/** @type {Token} */ token, /** @type {string} */ href) => {
    env.room = (env.room ?? SHARE * env.length + SPARE) - href.length - LINK;
    address = env.room >= 0 ? href : "";
    label = "";
    hasFormula = false;
    isCitation = token.markup === "citation";
    if (!isCitation) token.attrs = [["href", href]]; // no title
    if (address) found.push(token);
  };
  const close = () => {
    const place = (WEB.exec(address) ?? MAIL.exec(address))?.[1].toLowerCase() ?? "";
    if (address && !label.trim()) found.push(make("text", "", 0, place));
    if (address) found.push(make("link_close", "a", -1, ""));
    const hides = hasFormula || label.length > LABEL || namesAnother(label, place);
    if (address && !isCitation && hides) found.push(make("place", "", 0, place));
    address = "";
  };
  for (const token of tokens) {
    if (token.type === "link_open") open(token, String(token.attrGet("href")));
    else if (token.type === "link_close") close();
    else if (token.type === "image") {
      const inLink = address, text = visible(alternative(token)), href = String(token.attrGet("src"));
      if (!inLink) open(make("link_open", "a", 1, "", [["href", href]]), href);
      found.push(make("text", "", 0, text));
      label += text;
      if (!inLink) close();
    } else {
      if (address) token.content = visible(token.content);
      label += token.content;
      hasFormula ||= token.type === "formula";
      found.push(token);
    }
  }
  return found;
}

/** The alternative text of an image. @param {Token} image @returns {string} */
function alternative(image) {
  return (image.children ?? []).map((one) => one.type === "image" ? alternative(one) : one.content).join("");
}

/** Removes invisible characters and those that reverse others. @param {string} text */
function visible(text) {
  return text.replace(/(?![\n\t])[\p{Cc}\p{Cf}\p{DI}]/gu, "");
}

/** @param {string} label @param {string} place */
function namesAnother(label, place) {
  const plain = (/** @type {string} */ name) => name.toLowerCase().replace(/^www\.|\.$/g, "");
  const bare = label.normalize("NFKD").replace(/(?!\u0323)\p{M}/gu, "").toLowerCase().replace(LIKE_A_DOT, ".");
  return [label.normalize("NFKC"), bare.replaceAll("\u0323", "")].some((text) =>
    text.replace(/\s+(?=[.。])/g, "").split(/\s+/).some((word) => {
      const address = ADDRESS.exec(word);
      const names = address ? [address[1]] : word.split(new RegExp(`[${SLASHES}?#]`))[0].match(HOST) ?? [];
      return names.some((name) => plain(name) !== plain(place));
    }));
}
