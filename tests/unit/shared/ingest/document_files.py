"""Small PDF and Word files, written by hand."""

import io
import zipfile
from collections.abc import Sequence

IMAGE = b"q 100 0 0 100 0 0 cm BI /W 1 /H 1 /CS /G /BPC 8 ID \x80 EI Q"
ENCRYPTION = b"<< /Filter /Standard /V 1 /R 2 /P -4 /O <" + b"41" * 32 + b"> /U <" + b"42" * 32 + b"> >>"
_WORD = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
_MATH = 'xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math"'
_RELATIONSHIPS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"


def make_pdf(pages: Sequence[Sequence[str] | bytes], *, encrypted: bool = False) -> bytes:
    """Return a PDF file; a page is its lines of text, or its content stream."""
    kids = b" ".join(b"%d 0 R" % (4 + 2 * at) for at in range(len(pages)))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [" + kids + b"] /Count %d >>" % len(pages),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
    ]
    for page in pages:
        content = page if isinstance(page, bytes) else _draw(page)
        objects += [
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources << /Font << /F 3 0 R >> >> "
            b"/Contents %d 0 R >>" % (len(objects) + 2),
            b"<< /Length %d >>\nstream\n" % len(content) + content + b"\nendstream",
        ]
    made = bytearray(b"%PDF-1.4\n")
    places = []
    for number, each in enumerate(objects, start=1):
        places.append(len(made))
        made += b"%d 0 obj\n" % number + each + b"\nendobj\n"
    start = len(made)
    made += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    made += b"".join(b"%010d 00000 n \n" % place for place in places)
    extra = b" /Encrypt " + ENCRYPTION + b" /ID [<41> <41>]" if encrypted else b""
    made += b"trailer\n<< /Size %d /Root 1 0 R%s >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, extra, start)
    return bytes(made)


def _draw(lines: Sequence[str]) -> bytes:
    drawn = b"".join(
        b"(%s) Tj T* " % line.encode("cp1252").replace(b"(", rb"\(").replace(b")", rb"\)") for line in lines
    )
    return b"BT /F 12 Tf 14 TL 72 720 Td " + drawn + b"ET"


def paragraph(text: str, heading: int = 0) -> str:
    """Return a paragraph of a Word file; `heading` is the level of a heading, 0 for none."""
    style = f'<w:pPr><w:pStyle w:val="H{heading}"/></w:pPr>' if heading else ""
    return f'<w:p>{style}<w:r><w:t xml:space="preserve">{text}</w:t></w:r></w:p>'


def make_docx(body: str) -> bytes:
    """Return a Word file with this body, in WordprocessingML with the prefixes `w` and `m`."""
    kind = "application/vnd.openxmlformats-officedocument.wordprocessingml"
    package = 'xmlns="http://schemas.openxmlformats.org/package/2006'
    styles = "".join(
        f'<w:style w:type="paragraph" w:styleId="H{level}"><w:name w:val="heading {level}"/></w:style>'
        for level in (1, 2)
    )
    parts = {
        "[Content_Types].xml": f'<Types {package}/content-types">'
        f'<Override PartName="/word/document.xml" ContentType="{kind}.document.main+xml"/></Types>',
        "_rels/.rels": f'<Relationships {package}/relationships">'
        f'<Relationship Id="a" Type="{_RELATIONSHIPS}/officeDocument" Target="word/document.xml"/></Relationships>',
        "word/_rels/document.xml.rels": f'<Relationships {package}/relationships">'
        f'<Relationship Id="a" Type="{_RELATIONSHIPS}/styles" Target="styles.xml"/></Relationships>',
        "word/styles.xml": f"<w:styles {_WORD}>{styles}</w:styles>",
        "word/document.xml": f"<w:document {_WORD} {_MATH}><w:body>{body}</w:body></w:document>",
    }
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return made.getvalue()
