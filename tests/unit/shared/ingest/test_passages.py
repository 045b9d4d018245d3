"""Markdown and text as passages: cut at headings and sentences, never inside code or formulas, the same every time."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mathrag.errors import Invalid, InvalidLine
from mathrag.reading import paths
from mathrag.reading.lines import EmptyText
from mathrag.reading.paths import Chunking, Passage, corpus_lines, dataset_lines, passages
from shared.ingest.datasets import read_corpus
from shared.replies import CorpusRecord

SMALL = Chunking(size=40, overlap=0)
PAGE = """Before all headings.

# Sums

What a sum is.

## Of squares

First sentence here. Second sentence here. Third sentence here.

# Products
Last.
"""


def cut(text: str, size: int = 40, overlap: int = 0) -> list[Passage]:
    return list(passages(text, Chunking(size=size, overlap=overlap)))


def test_no_passage_spans_a_heading_and_the_headings_above_are_its_title() -> None:
    assert [(found.line, found.title) for found in cut(PAGE, 1000)] == [
        (1, ""), (5, "Sums"), (9, "Sums > Of squares"), (12, "Products")
    ]  # fmt: skip


def test_a_long_section_is_cut_between_sentences() -> None:
    found = [passage.text for passage in cut(PAGE) if passage.title == "Sums > Of squares"]
    assert found == ["First sentence here.", "Second sentence here.", "Third sentence here."]


def test_the_overlap_repeats_whole_sentences() -> None:
    found = cut("One is 1. Two is 2. Three is 3. Four is 4.", 30, 20)
    assert [passage.text for passage in found] == [
        "One is 1. Two is 2.",
        "Two is 2. Three is 3.",
        "Three is 3. Four is 4.",
    ]


@pytest.mark.parametrize(
    "block",
    [
        "```python\n# no heading. No sentence. {}\n\nprint(1)\n```",
        "~~~~\n```\n{} a. b. c.\n~~~~",
        "$$\na = b. {}\n\nc = d.\n$$",
        "\\[\na = b. {}\n\\]",
        "\\begin{align*}\na &= b. {}\\\\\n\\end{align*}",
    ],
)
def test_code_and_formulas_are_not_cut(block: str) -> None:
    whole = block.replace("{}", "x. " * 30)
    found = [passage.text for passage in cut(f"# A\nBefore it. And more before it.\n\n{whole}\n\nAfter it. # B\n")]
    assert [text for text in found if whole in text]


def test_a_block_that_is_never_closed_ends_with_the_text() -> None:
    assert "last" in cut("a\n\n```\nb\n# c\nlast")[-1].text


def test_chinese_sentences_and_words_without_blanks_are_cut_too() -> None:
    assert [passage.text for passage in cut("求和。" * 10, 12)] == ["求和。" * 4, "求和。" * 4, "求和。" * 2]
    assert [len(passage.text) for passage in cut("x" * 100)] == [40, 40, 20]


@given(st.text(st.sampled_from("ab .。\n#`$\\x"), max_size=300), st.integers(5, 60))
def test_nothing_is_lost_and_nothing_is_added(text: str, size: int) -> None:
    found = cut(text, size)
    assert found == cut(text, size)
    joined = "".join("".join(passage.text.split()) for passage in found)
    kept = iter("".join(text.split()))
    assert all(character in kept for character in joined)
    assert all(passage.text for passage in found)


@given(st.text(st.sampled_from("ab .\n"), max_size=300), st.integers(5, 60))
def test_prose_without_headings_is_kept_whole_and_short(text: str, size: int) -> None:
    found = cut(text, size)
    assert "".join("".join(passage.text.split()) for passage in found) == "".join(text.split())
    assert all(len(passage.text) <= size for passage in found)


def test_an_overlap_must_leave_room() -> None:
    with pytest.raises(Invalid, match="overlap"):
        Chunking(size=10, overlap=10)


# Folders


def put(folder: Path, files: dict[str, str | bytes]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def read(folder: Path) -> list[CorpusRecord]:
    return list(read_corpus(corpus_lines(folder)))


def test_a_folder_of_documentation_with_data_files_is_a_corpus_of_texts(tmp_path: Path) -> None:
    for name in ("results/figures.json", "guide/first.md", "reference.rst"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text('{"a": 1}' if name.endswith("json") else "Some words.", "utf-8")
    found = [source for source, _, _ in paths.corpus_lines(tmp_path)]
    assert found == ["guide/first.md", "reference.rst"]


def test_a_folder_of_notes_is_a_corpus(tmp_path: Path) -> None:
    put(tmp_path, {"b.txt": "Plain.", "a/n.md": PAGE, ".git/x.md": "no", "i.png": b"\x89", "c.MD": "\ufeffx\r\ny\rz"})
    found = {record.external_id: record for record in read(tmp_path)}
    names = ["a/n.md", "a/n.md, Sums", "a/n.md, Sums > Of squares", "a/n.md, Products", "b.txt", "c.MD"]
    assert list(found) == names
    assert found["a/n.md, Sums"].document.text == "Sums\nWhat a sum is."
    assert found["a/n.md, Sums"].meta == {"path": "a/n.md", "line": 5}
    assert found["c.MD"].document.text == "x\ny\nz"


def test_one_file_of_notes_is_a_corpus(tmp_path: Path) -> None:
    assert [record.external_id for record in read(put(tmp_path, {"a.md": "x"}) / "a.md")] == ["a.md"]


def test_a_readme_beside_a_known_layout_is_no_corpus(tmp_path: Path) -> None:
    put(tmp_path, {"README.md": "x", "corpus.jsonl": '{"_id": "a", "text": "y"}\n'})
    assert [record.external_id for record in read(tmp_path)] == ["a"]


def test_notes_are_no_dataset(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="no known layout"):
        dataset_lines(put(tmp_path, {"a.md": "x"}))


@pytest.mark.parametrize(
    ("content", "times", "said"),
    [
        (b"caf\xe9", 1, "is not UTF-8 (byte 3); save the file as UTF-8"),
        ("x".encode("utf-16"), 1, "iconv -f UTF-16"),
        (b"version https://git-lfs.github.com/spec/v1", 1, "run `git lfs pull`"),
        (b"\x1f\x8b\x08", 1, "gunzip"),
        (b"x" * 200 + b"\0", 1, "contains a NUL byte"),
        (b"x", (16 << 20) + 1, "split the file"),
    ],
)  # fmt: skip
def test_a_defect_names_the_file_and_the_fix(tmp_path: Path, content: bytes, times: int, said: str) -> None:
    put(tmp_path, {"a.md": content * times, "b.md": "fine"})
    with pytest.raises(InvalidLine, match=r"^a\.md, line 1: ") as caught:
        read(tmp_path)
    assert said in caught.value.message


def test_a_file_without_text_is_told_apart(tmp_path: Path) -> None:
    with pytest.raises(EmptyText, match=r"^a\.md, line 1: has no text; add text, .* --skip-empty$"):
        read(put(tmp_path, {"a.md": " \n"}))
