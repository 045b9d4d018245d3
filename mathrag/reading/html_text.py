"""Text of an HTML page, section by section, without scripts, styles, navigation and hidden elements."""

import codecs
import re
from collections import Counter
from html.parser import HTMLParser
from typing import NamedTuple

from mathrag.errors import InvalidLine

VOID = frozenset({
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"
})  # fmt: skip
"""Elements without content and end tag."""
LEFT_OUT = frozenset({
    "button", "canvas", "datalist", "dialog", "footer", "iframe", "menu", "nav", "noscript", "object", "script",
    "select", "style", "svg", "template", "textarea", "video", "audio"
})  # fmt: skip
ROLES = frozenset({"navigation", "search", "menu", "menubar", "toolbar", "contentinfo"})
"""Roles of elements without content, such as navigation."""
BLOCKS = frozenset({
    "address", "article", "aside", "blockquote", "body", "caption", "dd", "details", "div", "dl", "dt", "fieldset",
    "figcaption", "figure", "form", "header", "hr", "html", "legend", "li", "main", "ol", "p", "pre", "section",
    "summary", "table", "tbody", "tfoot", "thead", "title", "tr", "ul"
})  # fmt: skip
"""Elements that start and end a line."""
PARAGRAPHS = frozenset({
    "article", "aside", "blockquote", "dl", "figure", "ol", "p", "section", "table", "ul"
})  # fmt: skip
"""Blocks that are followed by an empty line."""
HEADINGS = {f"h{level}": level for level in range(1, 7)}
HEAD_CONTENT = frozenset({"base", "link", "meta", "noscript", "script", "style", "template", "title"})
"""Elements that `head` may contain; any other element ends it."""
_CELLS = frozenset({"p", "td", "th"})
_ROW_GROUPS = frozenset({"tbody", "tfoot", "thead"})
ENDED_BY = {name: frozenset({"p"}) for name in (*BLOCKS, *HEADINGS)} | {
    "li": frozenset({"li", "p"}),
    "dd": frozenset({"dd", "dt", "p"}),
    "dt": frozenset({"dd", "dt", "p"}),
    "td": _CELLS,
    "th": _CELLS,
    "tr": _CELLS | {"tr"},
    **dict.fromkeys(_ROW_GROUPS, _CELLS | {"tr"} | _ROW_GROUPS),
}
"""Elements whose end tag may be missing, by the element that ends them."""
_MAIN = re.compile(r"<main[\s>]|\srole\s*=\s*[\"']?main\b", re.IGNORECASE)
_CHARSET = re.compile(
    rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([\w.:-]+)|^<\?xml[^>]*?encoding=[\"']([\w.:-]+)", re.IGNORECASE
)
_LATIN = frozenset({"ascii", "cp1252", "iso8859-1"})
"""Python's names of the encodings that the web standard decodes as windows-1252, because pages mean that."""
_PERMALINK = re.compile(r"\s*[¶#§]$")


class Section(NamedTuple):
    """The text between two headings."""

    level: int
    """Level of its heading, from 1 to 6; 0 before the first heading."""
    heading: str
    text: str


def read_sections(html: str) -> list[Section]:
    """Return the sections of a page with text or a heading; if the page marks a main part, only those of this part.

    A table becomes one line per row, `pre` becomes a fenced block, and a formula becomes its TeX source between dollar
    signs, if it has one. A page without headings is one section with the page's title.
    """
    found = _read(html, main_only=True) if _MAIN.search(html) else []
    return found or _read(html, main_only=False)


def decode(raw: bytes) -> str:
    """Decode a page by its byte order mark or its declared encoding, otherwise as UTF-8.

    ISO-8859-1 and ASCII are read as windows-1252; a byte that windows-1252 does not define becomes U+FFFD.

    Raises:
        InvalidLine: the page does not have this encoding; the caller adds the name of the file.
    """
    marks = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
    encoding = next((name for mark, name in marks if raw.startswith(mark)), None)
    if encoding is None:
        declared = _CHARSET.search(raw[:2048])
        encoding = (declared[1] or declared[2]).decode() if declared else "utf-8"
        if encoding.lower().startswith("utf-16"):  # a page in UTF-16 cannot declare its encoding in ASCII
            encoding = "utf-8"
    try:
        if codecs.lookup(encoding).name in _LATIN:
            return raw.decode("cp1252", "replace")
        return raw.decode(encoding)
    except UnicodeDecodeError as error:
        problem = f"is not {encoding.upper()} (byte {error.start})"
        raise InvalidLine("", 0, f"{problem}; save it as UTF-8, or declare its encoding in <meta charset>") from error
    except LookupError as error:
        raise InvalidLine("", 0, f"declares the unknown encoding {encoding[:40]!r}; save it as UTF-8") from error


def _read(html: str, *, main_only: bool) -> list[Section]:
    reader = _Reader(main_only=main_only)
    reader.feed(html)
    reader.close()
    return reader.finish()


class _Formula:
    """A MathML element that is being read."""

    def __init__(self, alternative: str | None) -> None:
        self.alternative = alternative
        self.source: list[str] = []
        """TeX source in an annotation."""
        self.symbols: list[str] = []

    def format(self) -> str:
        source = "".join(self.source) or self.alternative or ""
        return f"${source.strip()}$" if source.strip() else "".join("".join(self.symbols).split())


class _Reader(HTMLParser):
    def __init__(self, *, main_only: bool) -> None:
        super().__init__(convert_charrefs=True)
        self._main_only = main_only
        self._open: list[str] = []
        self._counts: Counter[str] = Counter()
        self._left_out_at = 0
        """Depth of the outermost open element that is skipped; 0 if none is open."""
        self._main_at = 0
        """Depth of the main part; 0 outside."""
        self._level = 0
        self._heading = ""
        self._in_heading = False
        self._title = ""
        self._lines: list[str] = []
        self._line: list[str] = []
        self._formula: _Formula | None = None
        self._annotation: str | None = None
        """Encoding of a formula's open annotation."""
        self._tex: str | None = None
        """Dollar signs for the content of an open MathJax script."""
        self._sections: list[Section] = []

    def finish(self) -> list[Section]:
        """Return all sections."""
        self._end_section()
        if not any(section.level for section in self._sections) and self._sections and self._title:
            return [Section(1, self._title, self._sections[0].text)]
        return self._sections

    # Elements

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        is_hidden = "hidden" in values or (values.get("aria-hidden") == "true" and tag != "math")
        self._end_omitted(tag)
        if tag in VOID:
            if not is_hidden:
                self._add_void(tag, values)
            return
        self._open.append(tag)
        self._counts[tag] += 1
        if not self._main_at and (tag == "main" or values.get("role") == "main"):
            self._main_at = len(self._open)
        kind = values.get("type") or ""
        if tag == "script" and kind.startswith("math/tex") and not self._left_out_at:
            self._tex = "$$" if "display" in kind else "$"
        if not self._left_out_at and (tag in LEFT_OUT or is_hidden or values.get("role") in ROLES):
            self._left_out_at = len(self._open)
        if not self._left_out_at:
            self._enter(tag, values)

    def _end_omitted(self, tag: str) -> None:
        """Close the elements whose end tag is missing before this element starts."""
        if self._counts["head"] and tag not in HEAD_CONTENT and (tag == "body" or not self._left_out_at):
            self.handle_endtag("head")
        while self._open and self._open[-1] in ENDED_BY.get(tag, ()):
            self.handle_endtag(self._open[-1])

    def handle_endtag(self, tag: str) -> None:
        if not self._counts[tag]:
            return
        while self._open:
            ended = self._open.pop()
            self._counts[ended] -= 1
            depth = len(self._open) + 1
            if not self._left_out_at:
                self._leave(ended)
            if self._left_out_at == depth:
                self._left_out_at, self._tex = 0, None
            if self._main_at == depth:
                self._end_line()
                self._main_at = 0
            if ended == tag:
                return

    def handle_data(self, data: str) -> None:
        if self._tex is not None and self._is_wanted():
            self._line.append(f"{self._tex}{data.strip()}{self._tex}")
        if self._left_out_at:
            return
        if self._open and self._open[-1] == "head" and data.strip():
            self.handle_endtag("head")
        if self._formula is not None:
            if self._annotation is None:
                self._formula.symbols.append(data)
            elif "tex" in self._annotation.lower():
                self._formula.source.append(data)
        elif self._counts["title"] or self._is_wanted():
            self._line.append(data)

    def _is_wanted(self) -> bool:
        return (self._main_at > 0 or not self._main_only) and not self._counts["head"]

    def _add_void(self, tag: str, values: dict[str, str | None]) -> None:
        if self._left_out_at or not self._is_wanted():
            return
        if tag in ("br", "hr"):
            self._line.append("\n") if self._counts["pre"] else self._end_line()
        elif tag == "img" and values.get("alt"):
            self._line.append(f" {values['alt']} ")

    def _enter(self, tag: str, values: dict[str, str | None]) -> None:
        if tag == "math":
            self._formula = _Formula(values.get("alttext"))
        elif tag == "annotation-xml":
            self._annotation = ""
        elif tag == "annotation":
            self._annotation = values.get("encoding") or ""
        elif tag in HEADINGS and self._is_wanted():
            self._end_section()
            self._in_heading = True
        elif tag in BLOCKS and not self._counts["pre"] - (tag == "pre"):
            self._end_line()
            if tag == "li":
                self._line.append("- ")
        elif tag in ("td", "th") and "".join(self._line).strip():
            self._line.append(" | ")

    def _leave(self, tag: str) -> None:
        if tag == "math":
            self._end_formula()
        elif tag in ("annotation", "annotation-xml"):
            self._annotation = None
        elif tag in HEADINGS and self._is_wanted():
            self._level, self._heading = HEADINGS[tag], _PERMALINK.sub("", _collapse(self._line))
            self._line, self._in_heading = [], False
        elif tag == "title":
            self._title, self._line = self._title or _collapse(self._line), []
        elif tag == "pre" and not self._counts["pre"] and not self._in_heading:
            self._end_block()
        elif tag in BLOCKS and not self._counts["pre"]:
            self._end_line()
            if tag in PARAGRAPHS and not self._counts["td"] + self._counts["th"]:
                self._lines.append("")

    def _end_formula(self) -> None:
        if self._formula is not None and self._is_wanted():
            self._line.append(self._formula.format())
        self._formula = self._annotation = None

    # Lines

    def _end_line(self) -> None:
        """End the line, except in a heading or a cell: a heading and a table row are one line each."""
        if self._in_heading or self._counts["td"] + self._counts["th"]:
            self._line.append(" ")
            return
        line, self._line = _collapse(self._line), []
        if line not in ("", "-"):
            self._lines.append(line)

    def _end_block(self) -> None:
        text, self._line = "".join(self._line).strip("\n"), []
        fence = "```"
        while fence in text:
            fence += "`"
        if text.strip():
            self._lines.append(f"{fence}\n{text}\n{fence}\n")

    def _end_section(self) -> None:
        if line := _collapse(self._line):
            self._lines.append(line)
        text = re.sub(r"\n{3,}", "\n\n", "\n".join(self._lines)).strip()
        if text or self._heading:
            self._sections.append(Section(self._level, self._heading, text))
        self._level, self._heading, self._lines, self._line = 0, "", [], []


def _collapse(pieces: list[str]) -> str:
    return " ".join("".join(pieces).split())
