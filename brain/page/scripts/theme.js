// Ground: the chosen colours, before anything is painted. A classic script: a module would come too late.
"use strict";

const chosen = localStorage.getItem("theme");
if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
