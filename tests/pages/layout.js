// Returns the visible blocks in the order of the document, a line each: the twelfths of the window that a block covers,
// and its name. Of the headings, only those of `templates` have their texts: the others are a matter of data.
(templates) => {
  const BLOCKS = "header, nav, main, footer, article, aside, section, form, fieldset, figure, table, h1, h2, h3, svg, .card, .field";
  const LIVE = "#jobs, #lanes"; // of the page /now: what stands there depends on the moment
  const TWELFTHS = [...Array(12).keys()];
  const LEAST = 4; // pixels: a block that is narrower or lower is not seen, and edges that differ by less are one

  // What scrolls by itself shows only a part.
  const measure = (element) => {
    let { left, right, top, bottom } = element.getBoundingClientRect();
    for (let each = element.parentElement; each !== document.body; each = each.parentElement) {
      if (getComputedStyle(each).overflowX === "visible") continue;
      const frame = each.getBoundingClientRect();
      left = Math.max(left, frame.left);
      right = Math.min(right, frame.right);
    }
    return { left, right, top, bottom, element };
  };

  const list = (element) =>
    [...element.children].flatMap((child) => {
      if (!child.checkVisibility({ visibilityProperty: true }) || child.matches(LIVE)) return [];
      if (!child.matches(BLOCKS)) return list(child);
      const block = measure(child);
      return Math.min(block.right - block.left, block.bottom - block.top) < LEAST ? [] : [block];
    });

  // Such a block is as wide as its text, which differs between fonts.
  const isFitted = (element) => {
    const { display, flexBasis } = getComputedStyle(element);
    const isItem = getComputedStyle(element.parentElement).display.endsWith("flex") && flexBasis !== "100%";
    return isItem || display.startsWith("inline") || element.closest("td, th") !== null;
  };

  const draw = ({ left, right, element }) => {
    if (isFitted(element)) return " ".repeat(12);
    const [first, end] = [left, right].map((edge) => Math.round((edge * 12) / innerWidth));
    return TWELFTHS.map((at) => (first <= at && at < end ? "#" : ".")).join("");
  };

  const name = (element) => {
    const classes = (element.getAttribute("class") ?? "").split(" ").filter(Boolean);
    const text = /^h\d/.test(element.localName) && templates.includes(element.outerHTML) ? ` ${element.textContent}` : "";
    return [element.localName, ...classes].join(".") + text;
  };

  const isAbove = (one, other) => one.bottom < other.top + LEAST;
  const isLeft = (one, other) => one.right < other.left + LEAST;
  const isWithin = (block, frame) =>
    block.left > frame.left - LEAST && block.right < frame.right + LEAST &&
    block.top > frame.top - LEAST && block.bottom < frame.bottom + LEAST;

  const find = (block, earlier, frame) => {
    const column = earlier.filter((each) => !isLeft(each, block) && !isLeft(block, each));
    if (column.some((each) => isAbove(block, each))) return ", ABOVE AN EARLIER ONE";
    if (!column.every((each) => isAbove(each, block))) return ", ON AN EARLIER ONE";
    return isWithin(block, frame) ? "" : ", OUT OF ITS FRAME";
  };

  // Equal blocks of one frame are one line: how many there are is a matter of data.
  const write = (frame, indent) => {
    const blocks = list(frame.element);
    const lines = blocks.map((block, at) => {
      const line = `${draw(block)} ${indent}${name(block.element)}${find(block, blocks.slice(0, at), frame)}`;
      return [line, ...write(block, `${indent}  `)].join("\n");
    });
    return [...new Set(lines)];
  };

  const page = { left: 0, right: innerWidth, top: 0, bottom: Infinity, element: document.body };
  return write(page, "").join("\n").split("\n");
};
