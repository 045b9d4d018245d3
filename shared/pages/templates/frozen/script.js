"use strict";
(() => {
  const table = document.querySelector("table.samples");
  if (!table) return;
  const bodies = [...table.tBodies];
  const controls = document.querySelector(".controls");
  const said = controls.querySelector("output");
  const [text, ending, verdict] = ["text", "ending", "verdict"].map((name) => controls.querySelector(`[name=${name}]`));
  const texts = new Map(bodies.map((body) => [body, body.rows[0].textContent.toLowerCase()]));

  const filter = () => {
    const wanted = text.value.trim().toLowerCase();
    let shown = 0;
    for (const body of bodies) {
      body.hidden = !(texts.get(body).includes(wanted)
        && (!ending.value || body.dataset.ending === ending.value)
        && (!verdict.value || body.dataset.verdict === verdict.value));
      shown += body.hidden ? 0 : 1;
    }
    said.textContent = `${shown} of ${bodies.length} samples of this page are shown`;
  };

  const sort = (header, column) => {
    const downwards = header.getAttribute("aria-sort") === "ascending";
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    header.setAttribute("aria-sort", downwards ? "descending" : "ascending");
    const value = (body) => body.rows[0].cells[column].textContent.trim();
    const words = new Intl.Collator(undefined, { numeric: true }).compare;
    const compare = (one, other) => (isNaN(one) || isNaN(other) ? words(one, other) : one - other);
    const ordered = [...bodies].sort((one, other) => compare(value(one), value(other)));
    table.append(...(downwards ? ordered.reverse() : ordered));
  };

  [...table.tHead.rows[0].cells].forEach((header, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = header.textContent;
    button.addEventListener("click", () => sort(header, column));
    header.replaceChildren(button);
  });
  for (const field of [text, ending, verdict]) field.addEventListener("input", filter);
  controls.hidden = false;
  filter();
})();
