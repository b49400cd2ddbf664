// Ground: colours and frame as chosen, before anything is painted. A classic script: a module would come too late.
"use strict";

const chosen = localStorage.getItem("brain.theme");
if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
if (matchMedia("(min-width: 48.01rem)").matches && localStorage.getItem("brain.history") !== "hidden") {
  document.documentElement.classList.add("with-history");
}
