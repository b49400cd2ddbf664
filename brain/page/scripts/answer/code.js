// Code blocks: language, copy button and syntax highlighting.

import { copy } from "../base/clipboard.js";
import { make, makeIcon } from "../base/dom.js";
import { t } from "../base/texts.js";
import { log } from "./scrolling.js";

const CHUNK = 4000, LINE = 300; // characters highlighted at once, and per line; more takes too long
/** Languages with highlighting, and their aliases. @type {Record<string, string[]>} */
const LANGUAGES = {
  bash: ["sh", "zsh", "shell", "console"], c: ["h"], cpp: ["c++", "cc", "hpp", "cxx"], csharp: ["cs", "c#"], css: [],
  diff: ["patch"], dockerfile: ["docker"], go: ["golang"], graphql: ["gql"], ini: ["toml"], java: [],
  javascript: ["js", "jsx", "mjs", "node"], json: ["jsonc", "json5"], kotlin: ["kt"], lua: [], makefile: ["make"],
  nginx: [], perl: ["pl"], php: [], powershell: ["ps1", "pwsh"], python: ["py", "python3"], r: [], ruby: ["rb"],
  rust: ["rs"], scala: [], sql: ["sqlite", "postgresql", "mysql"], swift: [], typescript: ["ts", "tsx"],
  xml: ["html", "svg", "xhtml"], yaml: ["yml"],
};
const VENDOR = "../../vendor/highlight.js";

/** @type {Promise<unknown>} */
let queue = Promise.resolve();

/** Adds a line with language and copy button above code. @param {Element} pre */
export function addFrame(pre) {
  const language = pre.querySelector("code")?.className.match(/language-([\w+#.-]+)/)?.[1] ?? "";
  const copies = make("button", "quiet copy-code", makeIcon("copy"), make("span", "", t("copy")));
  copies.type = "button";
  copies.setAttribute("aria-label", t("copyCode"));
  pre.setAttribute("tabindex", "0");
  const around = make("div", "code", make("div", "code-head", make("span", "small", language), copies));
  pre.replaceWith(around);
  around.append(pre);
}

/**
 * Highlights complete code piece by piece while the browser is idle.
 * @param {Element} code
 * @param {(html: string) => DocumentFragment} clean
 */
export function highlightCode(code, clean) {
  const name = code.className.match(/language-(\S+)/)?.[1] ?? "";
  const [language] = Object.entries(LANGUAGES).find(([one, others]) => one === name || others.includes(name)) ?? [];
  const text = code.textContent ?? "", pieces = text.match(new RegExp(`[^]{1,${CHUNK}}(?=\\n\\n\\S|$)|[^]+`, "g"));
  if (!language || !pieces?.every(({ length }) => length <= CHUNK)) return;
  if (text.split("\n").some(({ length }) => length > LINE)) return;
  queue = queue.then(() => replace(code, pieces, language, clean)).catch(() => {}); // the code stays plain
}

/**
 * @param {Element} code
 * @param {string[]} pieces
 * @param {string} language
 * @param {(html: string) => DocumentFragment} clean
 */
async function replace(code, pieces, language, clean) {
  const { default: hljs } = await import(`${VENDOR}/core.min.js`);
  if (!hljs.getLanguage(language)) {
    const loaded = await import(`${VENDOR}/languages/${language}.min.js`);
    hljs.registerLanguage(language, loaded.default);
  }
  const nodes = [];
  for (const piece of pieces) {
    await new Promise((resolve) => (window.requestIdleCallback ?? setTimeout)(resolve));
    nodes.push(clean(hljs.highlight(piece, { language, ignoreIllegals: true }).value));
  }
  if (code.textContent === pieces.join("")) code.replaceChildren(...nodes);
}

log.addEventListener("click", ({ target }) => {
  const clicked = target instanceof Element && target.closest(".copy-code");
  if (clicked) copy(clicked, clicked.closest(".code")?.querySelector("pre")?.textContent ?? "");
});
