// Formulas in LaTeX: `$…$`, `$$…$$`, `\(…\)`, `\[…\]`. Temml converts them to MathML, which browsers draw.

/**
 * @typedef {import("./markdown.js").Env} Env
 * @typedef {import("./markdown.js").Rule} Rule
 */

const LENGTH = 1000; // characters; a longer formula stays text
const LEVELS = 60, SIZE = 60_000; // limits of the MathML; browsers lay out more slowly
const OPTIONS = { throwOnError: true, trust: false, maxExpand: 100, maxSize: [10, 10] };
/** @type {Record<string, string>} */
const CLOSING = { "\\(": "\\)", "\\[": "\\]", "$$": "$$", "$": "$" };
export const MATHS = /[\\^_={}<>+]/;

/** @type {Map<string, string | null>} */
const cache = new Map();
/** @type {any} */
let temml = null;
/** @type {Promise<void> | null} */
let loading = null;

/** Resolves when formulas can be drawn. */
export function loadFormulas() {
  loading ??= import(`../../vendor/${"temml/temml.mjs"}`).then((module) => { temml = module.default; });
  return loading;
}

/** @param {any} md a parser */
export function addFormulas(md) {
  md.block.ruler.before("fence", "formula", block, { alt: ["paragraph", "blockquote", "list"] });
  md.inline.ruler.before("escape", "formula", inline);
  md.renderer.rules.formula = /** @type {Rule} */ (tokens, n, _, env) => {
    const { content, markup, block, hidden } = tokens[n];
    const source = hidden ? content : markup + content + CLOSING[markup];
    const html = (hidden ? null : mathml(content, markup === "$$" || markup === "\\[", env))
      ?? `<code>${md.utils.escapeHtml(source)}</code>`;
    return block ? `<div class="formula">${html}</div>\n` : html;
  };
}

/**
 * @param {string} latex
 * @param {boolean} display
 * @param {Env} env
 */
function mathml(latex, display, env) {
  if (!temml) {
    env.lacksFormulas = true;
    return null;
  }
  const key = `${display}${latex}`, cached = cache.get(key);
  if (cached !== undefined) return cached;
  let html = null;
  try {
    html = classify(temml.renderToString(latex, { ...OPTIONS, displayMode: display }));
    if (html.length > SIZE || isDeep(html)) html = null;
  } catch {} // a formula that Temml does not understand stays text
  if (cache.size > 1000) cache.clear();
  cache.set(key, html);
  return html;
}

/** Replaces inline styles, which the page's policy forbids, by classes: boxes, and the sides of cells. @param {string} html */
function classify(html) {
  return html.replace(/(?: class="([^"]*)")? style="([^"]*)"/g, (_, classes, style) => {
    const names = classes ? [classes] : [];
    if (style.includes("border:1px solid")) names.push("tml-box");
    for (const [, width] of style.matchAll(/width:(50|100)%/g)) names.push(`tml-width-${width}`);
    for (const [, side, line] of style.matchAll(/border-(\w+):[\d.]+em (\w+)/g)) names.push(`tml-${side}-${line}`);
    for (const [, side, size, unit] of style.matchAll(/padding-(\w+):([\d.]+)(em|pt)/g)) {
      const em = unit === "pt" ? size / 12 : Number(size);
      names.push(`tml-${side}-${em === 0 ? "none" : em < 0.2 ? "thin" : em < 0.8 ? "usual" : "wide"}`);
    }
    return names.length ? ` class="${names.join(" ")}"` : "";
  });
}

/** @param {string} html */
function isDeep(html) {
  let level = 0;
  return [...html.matchAll(/<(\/?)m/g)].some(([, closes]) => (level += closes ? -1 : 1) > LEVELS);
}

/** @param {any} state @param {boolean} silent */
function inline(state, silent) {
  const { src, pos } = state, opening = /^(?:\\[([]|\$\$?)/.exec(src.slice(pos, pos + 2))?.[0];
  if (!opening) return false;
  const start = pos + opening.length, length = src.slice(start, start + LENGTH + 2).indexOf(CLOSING[opening]);
  const content = src.slice(start, start + length), end = start + length + opening.length;
  if (length < 1 || !isFormula(opening, content, src[pos - 1] ?? "", src[end] ?? "")) return false;
  if (!silent) Object.assign(state.push("formula", "math", 0), { content, markup: opening });
  state.pos = end;
  return true;
}

/**
 * Distinguishes formulas from citations in brackets and from amounts of money.
 * @param {string} opening
 * @param {string} content
 * @param {string} before
 * @param {string} after
 */
function isFormula(opening, content, before, after) {
  if (!content.trim()) return false;
  if (!opening.startsWith("$")) return opening === "\\(" || MATHS.test(content);
  if (content !== content.trim() || /[\w$]/.test(after) || content.includes("\n\n")) return false;
  if (opening === "$$") return true;
  if (/[\w$]/.test(before) || content.endsWith("\\")) return false;
  return MATHS.test(content) || /^\d+([.,]\d+)?$/.test(content) || !/^\d|\s/.test(content);
}

/**
 * A formula on separate lines. An open formula is `hidden`: the page shows its source.
 * @param {any} state
 * @param {number} first
 * @param {number} last
 * @param {boolean} silent
 */
function block(state, first, last, silent) {
  const start = state.bMarks[first] + state.tShift[first], opening = state.src.slice(start, start + 2);
  if ((opening !== "\\[" && opening !== "$$") || state.sCount[first] - state.blkIndent >= 4) return false;
  const length = state.src.slice(start + 2, start + LENGTH + 4).indexOf(CLOSING[opening]), end = start + length + 4;
  const open = length < 0 && state.env.open && state.level === 0 && state.src.length - start <= LENGTH;
  if (length < 0 && !open) return false;
  const stop = open ? state.src.trimEnd().length : end;
  let line = first;
  while (line < last && state.eMarks[line] < stop) line += 1;
  if (line >= last || (!open && state.src.slice(end, state.eMarks[line]).trim())) return false;
  for (let n = first; n <= line; n += 1) if (state.isEmpty(n) || state.sCount[n] < state.blkIndent) return false;
  const source = state.getLines(first, line + 1, state.blkIndent, false).trim();
  const content = open ? source : source.slice(2, -2);
  if (!content.trim()) return false;
  if (silent) return true;
  const token = state.push("formula", "math", 0);
  Object.assign(token, { content, markup: opening, block: true, hidden: open, map: [first, line + 1] });
  state.line = line + 1;
  return true;
}
