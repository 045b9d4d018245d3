"use strict";
// Typesets what the server marked as mathematics. Texts are hostile: no command that loads or links, bounded expansion.
(() => {
  // The same as in formatting.py: $5 and then $6 are amounts of money.
  const DELIMITERS = /\$\$([\s\S]+?)\$\$|\\\[([\s\S]+?)\\\]|\$([^\s$](?:[^$\n]*[^\s$])?| [^\s\d$](?:[^$\n]*[^\s$])? )\$(?!\d)|\\\(([\s\S]+?)\\\)|(\\boxed\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\})/g;
  // A page that is one file has no fonts: there the browser sets the mathematics itself.
  const output = document.querySelector('link[href*="katex"]') ? "htmlAndMathml" : "mathml";
  const LONGEST = 4000; // characters of one formula

  const set = (place, source, displayMode) => {
    const span = document.createElement("span");
    try {
      window.katex.render(source, span, {
        displayMode, output, throwOnError: true, trust: false, maxExpand: 200, maxSize: 20, strict: "ignore",
        errorColor: "currentcolor",
      });
      place.append(span);
    } catch {
      place.append(source); // what is no mathematics stays as it was written
    }
  };

  const typeset = (element) => {
    const text = element.textContent;
    const place = document.createDocumentFragment();
    let from = 0;
    for (const found of text.matchAll(DELIMITERS)) {
      if (found[0].length > LONGEST) continue;
      place.append(text.slice(from, found.index));
      const display = found[1] ?? found[2];
      set(place, display ?? found[3] ?? found[4] ?? found[5], display !== undefined);
      from = found.index + found[0].length;
    }
    place.append(text.slice(from));
    element.replaceChildren(place);
    element.classList.replace("math", "typeset");
  };

  const all = () => {
    if (window.katex) document.querySelectorAll(".math").forEach(typeset);
  };
  all();
  document.addEventListener("htmx:after:swap", all);
})();
