// A long list as one tab stop: arrow keys, Home and End move between its rows.

/**
 * @param {HTMLElement} list
 * @param {string} row a selector of rows; arrow keys move between their links, Tab goes to the buttons beside them
 * @returns {() => void} call it after the rows changed
 */
export function addArrowKeys(list, row) {
  const rows = () => /** @type {HTMLElement[]} */ ([...list.querySelectorAll(row)]);
  const settle = () => {
    const all = rows(), current = all.find((one) => one.querySelector("[aria-current]"));
    const stop = all.find((one) => one.contains(document.activeElement)) ?? current ?? all[0];
    for (const one of all) for (const part of partsOf(one)) part.tabIndex = one === stop ? 0 : -1;
  };
  list.addEventListener("focusin", settle);
  list.addEventListener("focusout", settle);
  list.addEventListener("keydown", (event) => {
    const all = rows(), at = all.findIndex((one) => partsOf(one).some((part) => part === event.target));
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: all.length - 1 }[event.key];
    if (at < 0 || to === undefined || event.defaultPrevented) return;
    event.preventDefault();
    if (all[to]) partsOf(all[to])[0].focus();
  });
  return settle;
}

/** @param {HTMLElement} row */
function partsOf(row) {
  return /** @type {HTMLElement[]} */ ([...row.querySelectorAll(":scope > a, :scope > button")]);
}
