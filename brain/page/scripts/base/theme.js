// Apply colours and frame before the first paint. A classic script: a module would come too late.
"use strict";

/** @param {string} name */
function chosen(name) {
  try {
    return localStorage.getItem(`brain.${name}`);
  } catch (error) {
    if (error instanceof DOMException) return null; // storage is forbidden
    throw error;
  }
}

const theme = chosen("theme");
if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
if (matchMedia("(min-width: 48.01rem)").matches && chosen("history") !== "hidden") {
  document.documentElement.classList.add("with-history");
}
