// Links in Markdown: only web and mail addresses. They show where they lead: a label can be anything.

/**
 * @typedef {import("./markdown.js").Token} Token
 * @typedef {import("./markdown.js").Env} Env
 * @typedef {(type: string, tag: string, nesting: -1 | 0 | 1, text: string, attrs?: [string, string][]) => Token} Make
 */

const SHARE = 10, SPARE = 10_000, LINK = 100; // limit of all URLs: SHARE × text length + SPARE; each costs LINK more
// A URL without a user name.
const WEB = /^https?:\/\/([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?(?:[/?#]|$)/i;
const MAIL = /^mailto:([^\s/?#@]+@[A-Za-z0-9.-]+)(?:\?|$)/i;

/** Whether links to this URL are allowed. @param {string} address */
export function isAddress(address) {
  return address.length <= 2000 && (WEB.test(address) || MAIL.test(address));
}

/**
 * Turns images into links, and adds the host after each label that is neither the URL nor its host.
 * @param {Token[]} tokens of one line
 * @param {Env} env
 * @param {Make} make
 * @returns {Token[]}
 */
export function showHosts(tokens, env, make) {
  /** @type {Token[]} */
  const found = [];
  let address = "", label = "", isCitation = false;
  const open = (/** @type {Token} */ token, /** @type {string} */ href) => {
    env.room = (env.room ?? SHARE * env.length + SPARE) - href.length - LINK;
    address = env.room >= 0 ? href : "";
    label = "";
    isCitation = token.markup === "citation";
    if (!isCitation) token.attrs = [["href", href]]; // no title
    if (address) found.push(token);
  };
  const close = () => {
    const place = (WEB.exec(address) ?? MAIL.exec(address))?.[1].toLowerCase() ?? "";
    if (address && !label.trim()) found.push(make("text", "", 0, place));
    if (address) found.push(make("link_close", "a", -1, ""));
    const isPlain = !label.trim() || [bare(address), bare(place)].includes(bare(label));
    if (address && !isCitation && !isPlain) found.push(make("place", "", 0, place));
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

/** An address as people write it. @param {string} address */
function bare(address) {
  return address.trim().replace(/^(?:https?:\/\/(?:www\.)?|www\.|mailto:)/i, "").replace(/\/$/, "");
}
