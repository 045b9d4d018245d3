"""PDF, Word and HTML files as passages that name their page or section; what cannot be read is named, and the rest
goes on."""

import contextlib
import io
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mathrag import installation
from mathrag.client.uploads import Sources
from mathrag.errors import InvalidLine, NotInstalled, TooLarge
from mathrag.reading import document_process
from mathrag.reading.html_text import read_sections
from mathrag.reading.lines import EmptyText, OnError
from mathrag.reading.paths import Chunking, corpus_lines, unread_files
from shared.ingest.datasets import read_corpus
from shared.replies import CorpusRecord
from tests.unit.shared.ingest.document_files import IMAGE, make_docx, make_pdf, paragraph

FOLDER: dict[str, bytes] = {
    "a/manual.pdf": make_pdf([["Install it.", "Then start it."], ["Stop it."]]),
    "guide.docx": make_docx(paragraph("Guide", 1) + paragraph("About it.") + paragraph("Linux", 2) + paragraph("Apt.")),
    "notes.md": b"Before.\n\n# Sums\n\nA sum.\n",
    "page.html": b"<title>T</title><h1>News</h1><p>Old.<h2>May</h2><p>New.",
}


def put(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def read(path: Path, **options: Any) -> list[CorpusRecord]:
    return list(read_corpus(corpus_lines(path, **options)))


def read_file(content: bytes, suffix: str) -> list[dict[str, Any]]:
    return [msgspec.json.decode(part) for part in document_process.read_parts(io.BytesIO(content), suffix)]


def test_a_folder_of_four_kinds_is_a_corpus_whose_ids_name_page_or_section(tmp_path: Path) -> None:
    found = read(put(tmp_path, FOLDER))
    assert [(record.external_id, record.document.text) for record in found] == [
        ("a/manual.pdf, page 1", "Install it.\nThen start it."),
        ("a/manual.pdf, page 2", "Stop it."),
        ("guide.docx, Guide", "Guide\nAbout it."),
        ("guide.docx, Guide > Linux", "Guide > Linux\nApt."),
        ("notes.md", "Before."),
        ("notes.md, Sums", "Sums\nA sum."),
        ("page.html, News", "News\nOld."),
        ("page.html, News > May", "News > May\nNew."),
    ]
    assert found[1].meta == {"path": "a/manual.pdf", "page": 2}
    assert found[3].meta == {"path": "guide.docx", "section": "Guide > Linux"}
    assert read(tmp_path) == found


def test_one_file_is_a_corpus(tmp_path: Path) -> None:
    put(tmp_path, FOLDER)
    assert [record.external_id for record in read(tmp_path / "guide.docx")] == [
        "guide.docx, Guide",
        "guide.docx, Guide > Linux",
    ]


def test_further_passages_of_a_place_are_numbered_and_never_share_an_id(tmp_path: Path) -> None:
    put(tmp_path, {"a.html": b"<h1>X (2)</h1>One.<h1>X</h1>Two. Three.<h1>X</h1>Four."})
    found = read(tmp_path, chunking=Chunking(size=6, overlap=0))
    assert [record.external_id for record in found] == ["a.html, X (2)", "a.html, X", "a.html, X (3)", "a.html, X (4)"]


def test_the_innermost_headings_of_a_long_path_are_kept(tmp_path: Path) -> None:
    put(tmp_path, {"a.html": b"<h1>" + b"long " * 100 + b"</h1><h2>End</h2>x"})
    (found,) = read(tmp_path)
    assert found.external_id is not None
    assert found.external_id.startswith("a.html, …")
    assert found.external_id.endswith("long > End")
    assert len(found.external_id) == len("a.html, ") + 200


def test_files_with_other_suffixes_are_listed(tmp_path: Path) -> None:
    put(tmp_path, {"a.md": b"x", "b/i.png": b"x", ".git/c": b"x", "d.xlsx": b"x"})
    assert unread_files(tmp_path, "train") == ["b/i.png", "d.xlsx"]
    assert unread_files(tmp_path / "d.xlsx", "train") == []
    assert unread_files(put(tmp_path, {"corpus.jsonl": b"{}"}), "train") == []


# Files that cannot be read

UNREADABLE = {
    "encrypted.pdf": (make_pdf([["x"]], encrypted=True), "is encrypted; save it without a password"),
    "scanned.pdf": (make_pdf([IMAGE]), "contains page images without text; recognise the text first (OCR)"),
    "cut.pdf": (make_pdf([["x"]])[:300], "is damaged or not a PDF file"),
    "none.pdf": (b"", "is damaged or not a PDF file"),
    "endless.pdf": (make_pdf([["x"]]).replace(b"/Count 1", b"/Count 99999"), "has 99999 pages, more than 10000; split"),
    "cut.docx": (make_docx(paragraph("x"))[:200], "is damaged or not a .docx file"),
    "old.docx": (document_process.OLD_WORD + b"x", "is encrypted, or written by an old version of Word"),
    "bomb.docx": (make_docx(" " * (65 << 20)), "unpacks to more than 67108864 bytes of XML; split the file"),
    "deep.docx": (make_docx("<w:tbl><w:tr><w:tc>" * 2000 + "</w:tc></w:tr></w:tbl>" * 2000), "is nested too deeply"),
    "cafe.html": (b"caf\xe9", "is not UTF-8 (byte 3); save it as UTF-8, or declare its encoding"),
    "code.html": (b"<meta charset=klingon>x", "declares the unknown encoding 'klingon'"),
}


@pytest.mark.parametrize(("name", "content", "said"), [(name, *each) for name, each in UNREADABLE.items()])
def test_a_file_that_cannot_be_read_is_named_with_the_fix(name: str, content: bytes, said: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidLine) as caught:
        read(put(tmp_path, {name: content}))
    assert caught.value.message.startswith(f"{name}, line 1: ")
    assert said in caught.value.message
    assert caught.value.message.count(name) == 1


@pytest.mark.parametrize(
    "content", [make_pdf([b""]), make_docx(""), b"<script>x</script>"], ids=["pdf", "docx", "html"]
)
def test_a_file_without_text_is_told_apart(content: bytes, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    name = f"a.{request.node.callspec.id}"
    with pytest.raises(EmptyText, match=rf"^{name}, line 1: has no text; .*--skip-empty$"):
        read(put(tmp_path, {name: content}))


def test_the_other_files_are_sent_where_one_cannot_be_read(tmp_path: Path) -> None:
    put(tmp_path, {"a.pdf": UNREADABLE["encrypted.pdf"][0], "b.html": b"x"})
    sources = Sources(corpus_lines(tmp_path), on_error=OnError.SKIP)
    assert [msgspec.json.decode(line)["id"] for line in sources] == ["b.html"]
    assert [tuple(each) for each in sources.rejected] == [("a.pdf", 1, "is encrypted; save it without a password")]


def test_nothing_of_a_file_is_kept_whose_reader_is_killed_and_the_others_are_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dying = put(tmp_path / "bin", {"python": b'#!/bin/sh\necho \'r{"page":1,"text":"x"}\'\nkill -KILL $$\n'}) / "python"
    dying.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(dying))
    sources = Sources(corpus_lines(put(tmp_path / "in", FOLDER)), on_error=OnError.SKIP)
    assert [msgspec.json.decode(line)["id"] for line in sources] == ["notes.md", "notes.md, Sums"]
    assert [each.source for each in sources.rejected] == ["a/manual.pdf", "guide.docx", "page.html"]
    assert all("ended with exit status -9" in each.message for each in sources.rejected)


def test_a_reader_that_takes_too_long_is_a_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = put(tmp_path / "bin", {"python": b"#!/bin/sh\nkill -XCPU $$\n"}) / "python"
    slow.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(slow))
    with pytest.raises(InvalidLine, match=r"^a\.html, line 1: the HTML file needs more than 300 s of CPU time"):
        read(put(tmp_path / "in", {"a.html": b"x"}))


def test_a_file_over_a_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document_process, "MAX_TEXT_CHARS", 3)
    for content, suffix in ((make_pdf([["ab"], ["cd"]]), ".pdf"), (b"abcd", ".html")):
        with pytest.raises(TooLarge, match="has more than 3 characters of text"):
            read_file(content, suffix)
    monkeypatch.setattr(document_process, "MAX_FILE_BYTES", 3)
    with pytest.raises(TooLarge, match="is longer than 3 bytes"):
        read_file(b"abcd", ".html")


def test_the_error_names_the_extra_before_anything_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "find_spec", lambda name: None)
    with pytest.raises(NotInstalled, match="`mammoth` of `mathrag") as caught:
        corpus_lines(put(tmp_path, FOLDER))
    assert str(caught.value.hint).endswith("[documents]'")
    assert [record.external_id for record in read(put(tmp_path, FOLDER) / "page.html")] == [
        "page.html, News",
        "page.html, News > May",
    ]


@settings(derandomize=True, max_examples=50)
@given(st.integers(0, 10_000), st.binary(min_size=1, max_size=8))
def test_any_damage_to_a_word_file_is_read_or_refused(at: int, damage: bytes) -> None:
    content = FOLDER["guide.docx"]
    at %= len(content)
    with contextlib.suppress(InvalidLine, TooLarge):
        read_file(content[:at] + damage + content[at + len(damage) :], ".docx")


# PDF


def test_words_hyphenated_at_the_end_of_a_line_are_joined_and_ligatures_resolved() -> None:
    (page,) = read_file(make_pdf([["The adminis-", "trator reads."]]), ".pdf")
    assert page["text"] == "The administrator reads."


def test_headers_and_page_numbers_that_every_page_repeats_are_left_out() -> None:
    pages = [["Manual 1.0", f"Exercise {number}", f"{number}x", str(number + 4)] for number in range(1, 7)]
    found = read_file(make_pdf(pages), ".pdf")
    assert [page["text"] for page in found] == [f"Exercise {number}\n{number}x" for number in range(1, 7)]
    assert read_file(make_pdf(pages[:5]), ".pdf")[0]["text"] == "Manual 1.0\nExercise 1\n1x\n5"


# Word


def formula(inner: str) -> str:
    return paragraph_with(f"<m:oMath>{inner}</m:oMath>")


def paragraph_with(inner: str) -> str:
    body = f"<w:p><w:r><w:t>So </w:t></w:r>{inner}</w:p>"
    (section,) = read_file(make_docx(body), ".docx")
    text: str = section["text"]
    return text


def run(text: str) -> str:
    return f"<m:r><m:t>{text}</m:t></m:r>"


def element(name: str, properties: dict[str, str], **parts: str) -> str:
    """Return an element of a formula; an underscore ends the name of a part that has further ones of its name."""
    values = "".join(f'<m:{each} m:val="{value}"/>' for each, value in properties.items())
    content = "".join(f"<m:{part.rstrip('_')}>{inner}</m:{part.rstrip('_')}>" for part, inner in parts.items())
    return f"<m:{name}><m:{name}Pr>{values}</m:{name}Pr>{content}</m:{name}>"


BINOMIAL = element("f", {"type": "noBar"}, num=run("n"), den=run("k"))
EQUATIONS = element("eqArr", {}, e=run("x=1"), e_=run("y=2"))
IN_BRACES = {"begChr": "{", "endChr": "}"}


@pytest.mark.parametrize(
    ("inner", "tex"),
    [
        (f"<m:f><m:num>{run('a')}</m:num><m:den>{run('b')}</m:den></m:f>", r"\frac{a}{b}"),
        (f"<m:sSup><m:e>{run('x')}</m:e><m:sup>{run('2')}</m:sup></m:sSup>{run('+1')}", "x^{2}+1"),
        (f"<m:sSubSup><m:e>{run('ab')}</m:e><m:sub>{run('i')}</m:sub><m:sup>{run('2')}</m:sup></m:sSubSup>",
         "{ab}_{i}^{2}"),
        (f"<m:rad><m:deg>{run('3')}</m:deg><m:e>{run('x')}</m:e></m:rad>", r"\sqrt[3]{x}"),
        (f'<m:nary><m:naryPr><m:chr m:val="∑"/></m:naryPr><m:sub>{run("k")}</m:sub><m:e>{run("k")}</m:e></m:nary>',
         "∑_{k} k"),
        (f'<m:d><m:dPr><m:begChr m:val="["/><m:endChr m:val="]"/></m:dPr><m:e>{run("x")}</m:e></m:d>', "[x]"),
        (f"<m:m><m:mr><m:e>{run('1')}</m:e><m:e>{run('2')}</m:e></m:mr><m:mr><m:e>{run('3')}</m:e></m:mr></m:m>",
         r"\begin{matrix}1 & 2 \\ 3\end{matrix}"),
        (f"<m:func><m:fName>{run('sin')}</m:fName><m:e>{run('x')}</m:e></m:func>", "sin x"),
        (f"<m:limLow><m:e>{run('lim')}</m:e><m:lim>{run('n')}</m:lim></m:limLow>", "lim_{n}"),
        (BINOMIAL, r"{n \atop k}"),
        (element("d", {}, e=BINOMIAL), r"\binom{n}{k}"),
        (element("d", {"begChr": "[", "endChr": "]"}, e=BINOMIAL), r"[{n \atop k}]"),
        (element("d", {}, e=BINOMIAL + run("+1")), r"({n \atop k}+1)"),
        (EQUATIONS, r"\begin{aligned}x=1 \\ y=2\end{aligned}"),
        (element("d", {"begChr": "{", "endChr": ""}, e=EQUATIONS), r"\begin{cases}x=1 \\ y=2\end{cases}"),
        (element("d", {"begChr": "{", "endChr": ""}, e=run("x")), r"\left\{ x \right."),
        (element("d", {"begChr": "", "endChr": "|"}, e=run("x")), r"\left. x \right|"),
        (element("d", IN_BRACES, e=run("1,2")), r"\{1,2\}"),
        (element("d", IN_BRACES | {"sepChr": ""}, e=run("1"), e_=run("2")), r"\{1 2\}"),
        (element("acc", {"chr": "⃗"}, e=run("v")), r"\vec{v}"),
        (element("acc", {}, e=run("x")), r"\hat{x}"),
        (element("acc", {"chr": "̅"}, e=run("x")), r"\bar{x}"),
        (element("acc", {"chr": "⃰"}, e=run("x")), "\\overset{⃰}{x}"),
        (element("bar", {"pos": "top"}, e=run("x")), r"\bar{x}"),
        (element("bar", {"pos": "top"}, e=run("AB")), r"\overline{AB}"),
        (element("bar", {}, e=run("x")), r"\underline{x}"),
        (element("groupChr", {}, e=run("x+y")), r"\underbrace{x+y}"),
        (element("groupChr", {"chr": "→", "pos": "top"}, e=run("f")), r"\overset{→}{f}"),
        (element("borderBox", {}, e=run("x")), r"\boxed{x}"),
        (element("sPre", {}, sub=run("2"), sup=run("3"), e=run("X")), "{}_{2}^{3}X"),
        (element("future", {}, e=run("x"), num=run("y")), r"\text{[future: }x\text{; }y\text{]}"),
        (f"<w:ins>{run('x')}</w:ins><w:del>{run('y')}</w:del><m:r><w:t>z</w:t></m:r>", "xz"),
    ],
)  # fmt: skip
def test_formulas_of_word_become_tex(inner: str, tex: str) -> None:
    assert formula(inner) == f"So ${tex}$"


def test_the_formulas_of_a_paragraph_are_lines() -> None:
    formulas = "".join(f"<m:oMath>{run(text)}</m:oMath>" for text in ("x=1", "y=2"))
    found = paragraph_with(f"<m:oMathPara><m:oMathParaPr/>{formulas}</m:oMathPara>")
    assert found == r"So $\begin{aligned}x=1 \\ y=2\end{aligned}$"


def test_tables_of_word_become_lines() -> None:
    cells = "".join(f"<w:tc>{paragraph(text)}</w:tc>" for text in "ab")
    (section,) = read_file(make_docx(f"<w:tbl><w:tr>{cells}</w:tr></w:tbl>"), ".docx")
    assert section["text"] == "a | b"


# HTML


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<style>p{}</style><script>var a = '<p>no'</script><nav>Home</nav>Yes<footer>no</footer>", "Yes"),
        ("<p hidden>no</p><p aria-hidden=true>no</p><div role=navigation>no</div>Yes", "Yes"),
        ("Beside<main><p>In it</p></main>Behind", "In it"),
        ("<!-- <main> -->Yes", "Yes"),
        ("<p>a <b>b</b>c\n  d<p>e<br>f", "a bc d\n\ne\nf"),
        ("<ul><li>a<li>b</ul>c", "- a\n- b\n\nc"),
        ("<table><tr><th>a<th>b<tr><td><p>1</p><td>2</table>c", "a | b\n1 | 2\n\nc"),
        ("<pre>\n# a\n  b\n</pre>", "```\n# a\n  b\n```"),
        ("<table><thead><tr><th>A<th>B<tbody><tr><td>1<td>2<tr><td>3<td>4", "A | B\n1 | 2\n3 | 4"),
        ("<table><thead><tr><th>A<tfoot><tr><td>1<tbody><tr><td>2</table>b", "A\n1\n2\n\nb"),
        ("<pre>```</pre>", "````\n```\n````"),
        ('<math alttext="y"><mi>x</mi><annotation encoding="application/x-tex">x^2</annotation></math>', "$x^2$"),
        ('<math alttext="y^2"><mi>y</mi></math>', "$y^2$"),
        ("<math><mi>x</mi> <mo>+</mo> <mi>y</mi></math>", "x+y"),
        (r'a <script type="math/tex">\frac12</script>', r"a $\frac12$"),
        ("<div hidden><script type=math/tex>x^2</script> secret</div>Yes", "Yes"),
        ("<nav><script type=math/tex>x^2</script>no</nav>Yes <script type=math/tex>y</script> and", "Yes $y$ and"),
        ('<img alt="A plot">&amp; &lt;b&gt;', "A plot & <b>"),
        ("</p></i>a</b><td>b", "a | b"),
    ],
)
def test_a_page_becomes_text(html: str, text: str) -> None:
    assert [section.text for section in read_sections(html)] == [text]


def test_headings_begin_sections_and_a_page_without_any_has_its_title() -> None:
    assert read_sections("<title>T</title>a<h1>B<a>¶</a></h1>c<h3>D</h3>") == [
        (0, "", "a"),
        (1, "B", "c"),
        (3, "D", ""),
    ]
    assert read_sections("<title>T</title><p>a") == [(1, "T", "a")]


@pytest.mark.parametrize(
    ("html", "heading"),
    [
        ("<h1>Part one<br>Introduction</h1>", "Part one Introduction"),
        ("<h2><div>Title</div></h2>", "Title"),
        ("<h2><pre>a b</pre></h2>", "a b"),
    ],
)
def test_a_heading_of_several_lines_is_one_heading(html: str, heading: str) -> None:
    assert [(section.heading, section.text) for section in read_sections(f"{html}<p>a<p>b")] == [(heading, "a\n\nb")]


def test_a_heading_that_is_never_closed_joins_no_lines_behind_the_next_one() -> None:
    assert read_sections("<h1>A<div>b</div><h2>C</h2><p>d<p>e") == [(0, "", "A b"), (2, "C", "d\n\ne")]


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<html><head><title>T</title><body><h1>A</h1><p>Hello</p>", "Hello"),
        ("<head><title>T<body><h1>A</h1>Hello", "Hello"),
        ("<head><title>T</title><style>p{}</style><meta name=a><h1>A</h1>Hello", "Hello"),
        ("<head><noscript><img alt=no></noscript><template><p>no</template><script>no</script><h1>A</h1>Yes", "Yes"),
    ],
)
def test_what_is_no_content_of_a_head_ends_it(html: str, text: str) -> None:
    assert read_sections(html) == [(1, "A", text)]
    assert read_sections("<head><title>T</title>Hello <img alt=you>") == [(1, "T", "Hello you")]


def test_declared_encodings_are_used() -> None:
    for content in (b"<meta charset=latin-1>caf\xe9", "\ufeffcafé".encode(), "café".encode("utf-16")):
        assert read_file(content, ".html")[0]["text"] == "café"


@pytest.mark.parametrize("label", ["ISO-8859-1", "latin-1", "us-ascii", "windows-1252"])
def test_a_page_in_latin_1_or_ascii_is_read_as_windows_1252(label: str) -> None:
    page = b'<meta http-equiv=content-type content="text/html; charset=%s">' % label.encode()
    assert read_file(page + b"\x93caf\xe9\x94 \x80\x81", ".html")[0]["text"] == "“café” €\ufffd"


TAGS = ["<p>", "</p>", "<td>", "<tr>", "<table>", "<pre>", "</pre>", "<h1>", "</h2>", "<math>", "<annotation>", "<nav>"]
PIECES = [
    *TAGS, "</math>", "</nav>", "<main>", "</main>", "<title>", "<script>", "<!--", "<a", "x", " ", "&lt", "<li>",
    "<head>", "<tbody>",
]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=30).map("".join))
def test_any_page_is_read(html: str) -> None:
    assert all(section.text or section.heading for section in read_sections(html))
