"use strict";
// A key presses the button that names it (data-press): 1 to 5, or a verdict's first letter, and a to abstain.
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
  if (event.target.closest("input, textarea, select, [contenteditable]")) return;
  document.querySelector(`[data-press="${CSS.escape(event.key)}"]`)?.click();
});
