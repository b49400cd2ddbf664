// Apply language, theme and layout before the first paint. A classic script, because a module would run too late.
"use strict";

/** @param {string} name */
function stored(name) {
  try {
    return localStorage.getItem(`brain.${name}`);
  } catch (error) {
    if (error instanceof DOMException) return null; // storage is forbidden
    throw error;
  }
}

/** The chosen language, else the first language of the browser that the page supports. */
function findLanguage() {
  const available = (root.dataset.languages ?? "").split(" ");
  for (const wanted of [stored("language") ?? "", ...navigator.languages]) {
    const found = available.find((one) => one.split("-")[0] === wanted.split("-")[0]);
    if (found) return found;
  }
  return "en";
}

/** Starts to load the texts before the modules that need them. */
function preloadTexts() {
  const link = document.createElement("link"), script = /** @type {HTMLScriptElement} */ (document.currentScript);
  link.rel = "preload";
  link.as = "fetch";
  link.crossOrigin = "anonymous"; // else fetch() would load the file again
  link.href = new URL(`../../texts/${root.lang.split("-")[0]}.json`, script.src).href;
  document.head.append(link);
}

const root = document.documentElement, theme = stored("theme");
root.lang = findLanguage();
preloadTexts();
if (theme === "light" || theme === "dark") root.dataset.theme = theme;
if (matchMedia("(min-width: 48.01rem)").matches && stored("history") !== "hidden") root.classList.add("with-history");
