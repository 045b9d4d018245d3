"use strict";
// Keys: j and k go from row to row, Enter opens, / filters, n and p turn the page, Ctrl+K finds, ? says so. Pages work without it.
(() => {
  const rows = () => [...document.querySelectorAll("[data-row]")].filter((row) => !row.hidden);
  const typing = (element) => element.closest("input, textarea, select, [contenteditable]") !== null;

  const step = (by) => {
    const all = rows();
    if (!all.length) return;
    // A live table takes the mark away, but not the focus.
    const at = all.findIndex((row) => row.contains(document.activeElement) || row.classList.contains("current"));
    const next = all[Math.min(Math.max(at + by, 0), all.length - 1)];
    all.forEach((row) => row.classList.toggle("current", row === next));
    (next.querySelector("a") ?? next).focus({ preventScroll: true });
    next.scrollIntoView({ block: "nearest" });
  };

  const keys = {
    j: () => step(1),
    k: () => step(-1),
    "/": () => document.querySelector("[data-filter]")?.focus(),
    n: () => document.querySelector("[data-key=n]")?.click(),
    p: () => document.querySelector("[data-key=p]")?.click(),
    "?": () => document.getElementById("keys")?.showModal(),
  };

  // What scrolls sideways can be reached, and so scrolled, by keyboard.
  const reach = () => document.querySelectorAll(".wide").forEach((wide) => {
    if (wide.scrollWidth > wide.clientWidth) wide.tabIndex = 0;
    else wide.removeAttribute("tabindex");
  });
  reach();
  document.addEventListener("htmx:after:swap", reach);

  document.addEventListener("keydown", (event) => {
    if (event.key === "k" && (event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey) {
      const find = document.querySelector("[data-find]");
      if (!find) return;
      event.preventDefault();
      find.focus();
      return find.select();
    }
    if (event.key === "Escape" && typing(event.target)) return event.target.blur();
    if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
    const act = keys[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
})();
