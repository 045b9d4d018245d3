"use strict";
// A button that copies a command; where the browser forbids it, the command can still be selected.
(() => {
  if (!navigator.clipboard) return;
  document.querySelectorAll("pre.copy, pre.command").forEach((command) => {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copies";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(command.textContent);
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
    command.before(button);
  });
})();
