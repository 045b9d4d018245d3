"""Read the text of one PDF, Word or HTML file in a separate process (`row_process`), by pages or sections.

A row is `{"page": 12, "text": ...}` or `{"level": 2, "heading": "Linux", "text": ...}`.
"""

import io
import os
import re
import sys
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from typing import IO, Any
from xml.etree import ElementTree as ET

import msgspec

from mathrag.errors import InvalidLine, TooLarge
from mathrag.reading import html_text, office_math, row_process

MEMORY_BYTES = 512 << 20
"""Maximum address space, in bytes; Python and the libraries take 60 MiB of it."""
MAX_FILE_BYTES = 256 << 20
MAX_MARKUP_BYTES = 64 << 20
"""Maximum size of an HTML file, and of the unpacked XML of a Word file, in bytes."""
MAX_TEXT_CHARS = 16 << 20
MAX_PAGES = 10_000
PACKAGES = {".pdf": "pypdfium2", ".docx": "mammoth", ".html": None, ".htm": None, ".xhtml": None}
"""Packages of the extra `documents` by the suffix of the files; None if the standard library reads them."""

Parts = Iterator[dict[str, Any]]


def main(suffix: str) -> None:
    """Write the parts of the file on stdin."""
    row_process.write_rows(lambda file: read_parts(file, suffix), MEMORY_BYTES)


def read_parts(file: IO[bytes], suffix: str) -> Iterator[bytes]:
    """Yield the parts of a file as JSON objects.

    Raises:
        InvalidLine: the file is damaged, encrypted, or only has images of text.
        TooLarge: the file is larger than a limit.
    """
    if file.seek(0, os.SEEK_END) > MAX_FILE_BYTES:
        raise TooLarge(f"is longer than {MAX_FILE_BYTES} bytes")
    file.seek(0)
    try:
        for part in _READERS[suffix](file):
            yield msgspec.json.encode(part)
    except (InvalidLine, TooLarge, MemoryError):
        raise
    except RecursionError as error:
        raise InvalidLine("", 0, "is nested too deeply; save it again from the program that wrote it") from error
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"[:200]
        raise InvalidLine("", 0, f"cannot be read ({reason}); it may be damaged: save it again") from error


def require_short(chars: int) -> None:
    """Check the number of characters of text.

    Raises:
        TooLarge: the file has more than `MAX_TEXT_CHARS`.
    """
    if chars > MAX_TEXT_CHARS:
        raise TooLarge(f"has more than {MAX_TEXT_CHARS} characters of text")


# PDF

PASSWORD_NEEDED = 4
"""FPDF_ERR_PASSWORD"""
_INVISIBLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\ufffe\uffff\ud800-\udfff]")
"""Removed characters, including U+0002: PDFium joins the parts of a word with it that was hyphenated at a line end."""
_LIGATURES = str.maketrans({"ﬀ": "ff", "ﬁ": "fi", "ﬂ": "fl", "ﬃ": "ffi", "ﬄ": "ffl", "ﬅ": "st", "ﬆ": "st"})


def read_pdf(file: IO[bytes]) -> Parts:
    """Yield the pages."""
    from pypdfium2.raw import FPDF_PAGEOBJ_IMAGE

    pdf = _open_pdf(file)
    pages: list[list[str]] = []
    has_images = False
    chars = 0
    for number in range(len(pdf)):
        page = pdf[number]
        found = page.get_textpage().get_text_bounded().replace("\r\n", "\n")
        chars += len(found)
        require_short(chars)
        pages.append(_INVISIBLE.sub("", found).translate(_LIGATURES).strip().split("\n"))
        if not chars and not has_images:  # pages with text are not searched for images, which is slow
            has_images = any(True for _ in page.get_objects(filter=[FPDF_PAGEOBJ_IMAGE], max_depth=3))
        page.close()  # frees the text too; otherwise all pages stay in memory
    if has_images and not chars:
        advice = "recognise the text first (OCR), for instance with `ocrmypdf OLD.pdf NEW.pdf`"
        raise InvalidLine("", 0, f"contains page images without text; {advice}")
    drop_running_lines(pages)
    yield from ({"page": number, "text": "\n".join(lines)} for number, lines in enumerate(pages, start=1))


def _open_pdf(file: IO[bytes]) -> Any:
    import pypdfium2

    try:
        pdf = pypdfium2.PdfDocument(file)
    except pypdfium2.PdfiumError as error:
        if error.err_code == PASSWORD_NEEDED:
            raise InvalidLine("", 0, "is encrypted; save it without a password") from error
        raise InvalidLine("", 0, f"is damaged or not a PDF file ({error}); download or export it again") from error
    if len(pdf) > MAX_PAGES:
        raise TooLarge(f"has {len(pdf)} pages, more than {MAX_PAGES}")
    return pdf


def drop_running_lines(pages: list[list[str]]) -> None:
    """Remove, in place, page numbers and the headers and footers that are equal on a third of at least six pages.

    A header that differs between pages by more than the page number is kept, because it may be content.
    """
    for edge in (0, -1, 0, -1):
        marks = [_mark(lines[edge].strip(), number) if lines else "" for number, lines in enumerate(pages)]
        counts = Counter(marks)
        for lines, mark in zip(pages, marks, strict=True):
            if mark and counts[mark] >= max(3, len(pages) / 3) and len(pages) >= 6:
                lines.pop(edge)


def _mark(line: str, number: int) -> str:
    """Return the line; if it is a number, return its distance from the page number."""
    return f"page {int(line) - number}" if re.fullmatch(r"[0-9]{1,6}", line) else line


# Word

OLD_WORD = b"\xd0\xcf\x11\xe0"
"""First bytes of encrypted files, and of files of old versions of Word."""
_WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"


def read_docx(file: IO[bytes]) -> Parts:
    """Yield the sections of a Word file, whose headings are paragraphs of the styles "Heading 1" to "Heading 6"."""
    import mammoth

    if file.read(len(OLD_WORD)) == OLD_WORD:
        raise InvalidLine(
            "", 0, "is encrypted, or written by an old version of Word; save it as .docx without a password"
        )
    try:
        archive = zipfile.ZipFile(file)
    except zipfile.BadZipFile as error:
        raise InvalidLine("", 0, "is damaged or not a .docx file; download or save it again") from error
    parts = [each for each in archive.infolist() if each.filename.endswith((".xml", ".rels"))]
    if sum(each.file_size for each in parts) > MAX_MARKUP_BYTES:  # `zipfile` never unpacks more than these sizes
        raise TooLarge(f"unpacks to more than {MAX_MARKUP_BYTES} bytes of XML")
    without_images = io.BytesIO()
    with zipfile.ZipFile(without_images, "w") as copy:
        for each in parts:
            copy.writestr(each.filename, replace_formulas(archive.read(each)))
    html = mammoth.convert_to_html(without_images, convert_image=lambda _: []).value
    return _list_sections(html)


def replace_formulas(part: bytes) -> bytes:
    """Replace the formulas in a part of a Word file, which mammoth omits, by text runs with their TeX."""
    if b":oMath" not in part:
        return part
    root = ET.fromstring(part)  # noqa: S314 - expat resolves nothing external, and this process is limited
    for parent in list(root.iter()):
        for at, child in enumerate(parent):
            if child.tag in (f"{office_math.NAMESPACE}oMath", f"{office_math.NAMESPACE}oMathPara"):
                run = ET.Element(f"{_WORD}r")
                text = ET.SubElement(run, f"{_WORD}t")
                text.text = f"${office_math.format_formula(child).strip()}$"
                parent[at] = run
    return ET.tostring(root)


# HTML


def read_html(file: IO[bytes]) -> Parts:
    """Yield the sections of a page."""
    raw = file.read(MAX_MARKUP_BYTES + 1)
    if len(raw) > MAX_MARKUP_BYTES:
        raise TooLarge(f"is longer than {MAX_MARKUP_BYTES} bytes")
    return _list_sections(html_text.decode(raw))


def _list_sections(html: str) -> Parts:
    sections = html_text.read_sections(_INVISIBLE.sub("", html))
    require_short(sum(len(section.text) for section in sections))
    return (section._asdict() for section in sections)


_READERS: dict[str, Callable[[IO[bytes]], Parts]] = {
    ".pdf": read_pdf,
    ".docx": read_docx,
    ".html": read_html,
    ".htm": read_html,
    ".xhtml": read_html,
}


if __name__ == "__main__":
    main(sys.argv[1])
