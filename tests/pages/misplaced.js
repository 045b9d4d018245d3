// Returns the visible texts that are broken within a word, stick out of their box, or lie on another text.
() => {
  const LONGEST = 20; // characters: what is longer, such as a hash or a path, may be broken
  const PARTS = /[\p{Script=Latin}\p{Script=Greek}\p{N}_.,:;=%+()'"]+/gu; // of a word: a line may end at a hyphen
  const BOXES = "td, th, caption, dd, dt, li, p, figcaption, h1, h2, h3, label, button, .card, main, body";
  const SHOWN = { contentVisibilityAuto: true, opacityProperty: true, visibilityProperty: true };
  const found = new Set();

  const name = (element) => {
    const classes = [...element.classList].map((each) => `.${each}`).join("");
    return `${element.localName}${classes} ${JSON.stringify(element.textContent.trim().slice(0, 60))}`;
  };

  const checkWords = (node, element) => {
    const box = element.closest(BOXES);
    const ends = getComputedStyle(box).overflowX === "visible" ? box.getBoundingClientRect().right + 1 : Infinity;
    const range = document.createRange();
    for (const word of node.data.matchAll(/\S+/g)) {
      if (word[0].length > LONGEST) continue;
      for (const part of word[0].matchAll(PARTS)) {
        range.setStart(node, word.index + part.index);
        range.setEnd(node, word.index + part.index + part[0].length);
        const pieces = [...range.getClientRects()].filter((rect) => rect.width > 0);
        const tops = pieces.map((rect) => rect.top);
        if (Math.max(...tops) > Math.min(...tops) + 3) found.add(`broken word ${part[0]}: ${name(element)}`);
        if (pieces.some((rect) => rect.right > ends)) found.add(`sticks out, ${part[0]}: ${name(box)}`);
      }
    }
  };

  // What scrolls by itself shows only a part of its text.
  const clip = ({ left, right, top, bottom }, element) => {
    for (let each = element; each; each = each.parentElement) {
      if (getComputedStyle(each).overflowX === "visible") continue;
      const frame = each.getBoundingClientRect();
      left = Math.max(left, frame.left);
      right = Math.min(right, frame.right);
      top = Math.max(top, frame.top);
      bottom = Math.min(bottom, frame.bottom);
    }
    return { left, right, top, bottom };
  };

  const lines = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; (node = walker.nextNode()); ) {
    const element = node.parentElement;
    if (!node.data.trim() || !element.checkVisibility(SHOWN)) continue;
    if (element.closest(".visually-hidden, .skip, .katex, svg, textarea, select")) continue;
    checkWords(node, element);
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const rect of range.getClientRects()) {
      const line = { ...clip(rect, element), element };
      if (line.right > line.left + 1 && line.bottom > line.top + 1) lines.push(line);
    }
  }

  lines.sort((one, other) => one.top - other.top);
  lines.forEach((one, at) => {
    for (let next = at + 1; next < lines.length && lines[next].top < one.bottom; next++) {
      const other = lines[next];
      const width = Math.min(one.right, other.right) - Math.max(one.left, other.left);
      const height = Math.min(one.bottom, other.bottom) - other.top;
      // Lines above each other may touch: fonts are higher than lines.
      const least = Math.min(one.bottom - one.top, other.bottom - other.top) / 2;
      if (width > 2 && height > least) found.add(`overlap: ${name(one.element)} and ${name(other.element)}`);
    }
  });
  return [...found];
}
