"""Formats of uploads: JSON lines, CSV and Parquet say the same, and the layouts of others are read as they are."""

import csv
import io
import json
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyarrow import parquet

from mathrag.errors import Invalid, InvalidLine
from mathrag.reading import lines
from mathrag.reading.lines import Defect, Row
from mathrag.reading.paths import corpus_lines, dataset_lines
from mathrag.reading.rows import Format, read
from shared.calls import Expected
from shared.ingest import datasets
from shared.ingest.datasets import read_corpus, read_dataset
from shared.replies import CorpusRecord
from shared.samples import DatasetItem
from tests.unit.datasets import DATA, needs

pytestmark = pytest.mark.usefixtures("unpacked_here")

Rows = list[dict[str, Any]]


def as_jsonl(rows: Rows) -> bytes:
    return b"".join(msgspec.json.encode(row) + b"\n" for row in rows)


def as_csv(rows: Rows, delimiter: str = ",") -> bytes:
    names = list(dict.fromkeys(name for row in rows for name in row))
    text = "\n".join(
        delimiter.join(cell(row.get(name, "")) for name in names) for row in [{name: name for name in names}, *rows]
    )
    return text.encode() + b"\n"


def cell(value: Any) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return '"' + text.replace('"', '""') + '"'


def as_parquet(rows: Rows, **options: Any) -> bytes:
    file = io.BytesIO()
    parquet.write_table(pa.Table.from_pylist(rows), file, row_group_size=2, **options)
    return file.getvalue()


FORMATS = pytest.mark.parametrize("written", [as_jsonl, as_csv, as_parquet])


def rows_of(content: bytes, given: Format = Format.AUTO, **options: Any) -> list[Row]:
    return list(reading(content, given, **options))


def reading(content: bytes, given: Format = Format.AUTO, **options: Any) -> Iterator[Row]:
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.seek(0)
        yield from read(file, "upload", given, **options)


def items(content: bytes) -> list[DatasetItem]:
    return list(read_dataset(rows_of(content)))


def documents(content: bytes) -> list[CorpusRecord]:
    return list(read_corpus(rows_of(content)))


@FORMATS
def test_all_formats_say_the_same(written: Callable[[Rows], bytes]) -> None:
    rows = [
        {"id": "a", "problem": "What is 1 + 1?", "solution": 'He said "2",\nand \\boxed{2}; 求和', "level": "Level 1"},
        {"id": "b", "problem": "p", "solution": "s", "level": "5"},
        {"id": "c", "problem": "q", "solution": "t\tu", "level": "?"},
    ]
    assert documents(written(rows)) == documents(as_jsonl(rows))
    assert items(written(rows)) == items(as_jsonl(rows))
    assert [record.external_id for record in documents(written(rows))] == ["a", "b", "c"]
    assert items(written(rows))[0].gold == "2"


LOVELACE = Expected(golds=("Ada Lovelace",))
GRACE = Expected(golds=("Grace",))


@FORMATS
def test_reads_flashrag(written: Callable[[Rows], bytes]) -> None:
    [item] = items(written([{"id": "test_0", "question": "Who?", "golden_answers": ["Ada", "Ada Lovelace"]}]))
    assert (item.custom_id, item.question, item.gold, item.expected) == ("test_0", "Who?", "Ada", LOVELACE)
    [record] = documents(written([{"id": "0", "contents": '"Ada"\nShe wrote.'}]))
    assert (record.external_id, record.document.text) == ("0", '"Ada"\nShe wrote.')


@FORMATS
def test_reads_autorag(written: Callable[[Rows], bytes]) -> None:
    qa = {"qid": "q1", "query": "Who?", "retrieval_gt": [["d1"], ["d2", "d3"]], "generation_gt": ["Ada", "Grace"]}
    [item] = items(written([qa]))
    assert (item.custom_id, item.question, item.gold, item.expected) == (
        "q1",
        "Who?",
        "Ada",
        Expected(golds=("Grace",)),
    )
    assert item.gold_documents == {"d1": 1, "d2": 1, "d3": 1}
    [record] = documents(written([{"doc_id": "d1", "contents": "She wrote.", "metadata": {"page": 3}}]))
    assert (record.external_id, record.document.text, record.meta) == ("d1", "She wrote.", {"page": 3})


@FORMATS
def test_reads_ragas(written: Callable[[Rows], bytes]) -> None:
    row = {
        "user_input": "Who?", "reference": "Ada", "response": "Bob", "reference_contexts": ["c"],
        "retrieved_contexts": ["d"], "reference_context_ids": ["d1"],
    }  # fmt: skip
    [item] = items(written([row]))
    assert (item.question, item.gold, item.gold_documents) == ("Who?", "Ada", {"d1": 1})


@FORMATS
def test_reads_older_ragas(written: Callable[[Rows], bytes]) -> None:
    [item] = items(written([{"question": "Who?", "answer": "Bob", "contexts": ["c"], "ground_truth": "Ada"}]))
    assert (item.question, item.gold) == ("Who?", "Ada")


# CSV


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_the_delimiter_is_the_one_that_splits_the_header_into_known_names(delimiter: str) -> None:
    [item] = items(as_csv([{"custom": "1", "question": "a, b; c", "answer": "4"}], delimiter))
    assert (item.question, item.gold) == ("a, b; c", "4")


def test_a_delimiter_may_be_given() -> None:
    content = b"question,answer;text\n1,2;3\n"
    with pytest.raises(InvalidLine, match="line 1: the header fits several delimiters"):
        rows_of(content)
    assert rows_of(content, delimiter="comma") == [("upload", 2, {"answer;text": None, "question": "1"})]
    with pytest.raises(Invalid, match="not one of comma, semicolon, tab"):
        rows_of(content, delimiter="|")


@pytest.mark.parametrize("content", [b'{"question": "a"}\n', b"what\n", as_parquet([{"question": "a"}])])
def test_a_delimiter_of_what_is_no_csv_is_refused(content: bytes) -> None:
    with pytest.raises(Invalid, match=r"`delimiter`: applies only to CSV, but upload is (jsonl|parquet)"):
        rows_of(content, delimiter="comma")


def test_rows_have_the_number_of_the_line_that_they_begin_in() -> None:
    content = b'\xef\xbb\xbfid,text\r\n1,"a\r\nb"\r\n\r\n2,c\r\n'
    assert rows_of(content) == [
        ("upload", 2, {"id": "1", "text": "a\r\nb"}), ("upload", 5, {"id": "2", "text": "c"})
    ]  # fmt: skip


def test_an_empty_cell_is_no_value_but_an_empty_text_is_an_empty_text() -> None:
    assert rows_of(b",id,question,answer\n0,,,\n") == [("upload", 2, {"question": ""})]


# Parquet


def test_parquet_is_read_row_group_by_row_group_and_only_where_it_means_something() -> None:
    row = {"doc_id": "a", "contents": "x", "metadata": {"at": datetime(2026, 1, 2, tzinfo=UTC), "score": float("nan")}}
    content = as_parquet([{**row, "doc_id": str(number), "vector": [0.5] * 3} for number in range(5)])
    found = [(line, lines.fields(content)) for _, line, content in rows_of(content)]
    assert [(line, fields["doc_id"]) for line, fields in found] == [(n + 1, str(n)) for n in range(5)]
    assert "vector" not in found[1][1]
    assert found[0][1] == {
        "vector": None,
        "doc_id": "0",
        "contents": "x",
        "metadata": {"at": "2026-01-02T00:00:00+00:00", "score": None},
    }


def test_text_that_an_old_writer_stored_as_bytes_is_text() -> None:
    ((source, line, content),) = rows_of(as_parquet([{"text": "é".encode()}]))
    assert (source, line, lines.fields(content)) == ("upload", 1, {"text": "é"})


# A format that is asked for


@pytest.mark.parametrize(
    ("content", "given", "said"),
    [
        (as_parquet([{"text": "x"}]), Format.JSONL, "is parquet, not jsonl"),
        (as_parquet([{"text": "x"}]), Format.CSV, "is parquet, not csv"),
        (b'{"text": "x"}\n', Format.PARQUET, "is not Parquet"),
        (b'{"text": "x"}\n', Format.CSV, "is jsonl, not csv"),
        (b"id,text\n1,x\n", Format.JSONL, "is csv, not jsonl"),
    ],
)
def test_a_format_that_contradicts_the_content_is_refused(content: bytes, given: Format, said: str) -> None:
    with pytest.raises(InvalidLine, match=rf"^upload, line 1: {said}"):
        rows_of(content, given)


# Files and folders


def put(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def test_an_autorag_folder_is_corpus_and_dataset(tmp_path: Path) -> None:
    put(tmp_path, {
        "corpus.parquet": as_parquet([{"doc_id": "d", "contents": "x"}]),
        "qa.parquet": as_parquet([{"qid": "q", "query": "?", "retrieval_gt": [["d"]], "generation_gt": ["x"]}]),
    })  # fmt: skip
    assert [record.external_id for record in read_corpus(corpus_lines(tmp_path))] == ["d"]
    assert [item.custom_id for item in read_dataset(dataset_lines(tmp_path))] == ["q"]


def test_a_flashrag_folder_has_a_file_per_split(tmp_path: Path) -> None:
    put(tmp_path, {f"{split}.jsonl": as_jsonl([{"id": split, "question": "?"}]) for split in ("test", "dev")})
    assert [item.custom_id for item in read_dataset(dataset_lines(tmp_path))] == ["test"]
    assert [item.custom_id for item in read_dataset(dataset_lines(tmp_path, split="dev"))] == ["dev"]


def test_a_folder_that_may_mean_two_layouts_is_refused(tmp_path: Path) -> None:
    put(tmp_path, {"corpus.jsonl": b"{}", "corpus.parquet": b""})
    with pytest.raises(Invalid, match=r"fits several layouts: corpus\.jsonl, corpus\.parquet") as caught:
        corpus_lines(tmp_path)
    assert "--from" in str(caught.value.hint)


@pytest.mark.parametrize("name", ["x.csv", "x.tsv", "x.dat"])
def test_a_file_is_recognised_by_its_content(tmp_path: Path, name: str) -> None:
    put(tmp_path, {name: b"id\ttext\n1\tx\n"})
    assert [record.document.text for record in read_corpus(corpus_lines(tmp_path / name))] == ["x"]


@needs("math")
def test_real_data_say_the_same_in_every_format(tmp_path: Path) -> None:
    for name in ("math/test-dev.jsonl", "gsm8k/test-dev.jsonl", "zh/cmath-test.jsonl"):
        expected = list(read_dataset(dataset_lines(DATA / name)))
        fields = [msgspec.json.decode(line) for line in (DATA / name).read_bytes().splitlines() if line.strip()]
        for written in (as_csv, as_parquet):
            assert items(written(fields)) == expected, (name, written)


# Lists as Python writes them


def cells_of(cell: str, column: str = "golden_answers") -> Any:
    table = io.StringIO()
    csv.writer(table).writerows([["question", column], ["What?", cell]])
    ((_, _, content),) = rows_of(table.getvalue().encode())
    return lines.fields(content)[column]


@pytest.mark.parametrize(
    "texts",
    [
        ["a", "b"],
        ["a"],
        ["it's", 'a "b"'],
        ["x, y", "[z]"],
        [r"\frac{1}{2}", "a\nb", "\t"],
        ["é", "中文", "😀", "\x85"],
        ["", " "],
    ],
)
def test_a_list_of_texts_is_read_as_python_writes_it(texts: list[str]) -> None:
    assert cells_of(repr(texts)) == texts
    assert cells_of(f" {texts!r}\n") == texts
    assert cells_of(json.dumps(texts)) == texts
    assert cells_of(repr(texts), "reference_context_ids") == texts


@pytest.mark.parametrize(
    "cell",
    ["['a' 'b']", "['a', 1]", "['a', None]", "['a', ['b']]", "['a'", "['a',]x", "['a'] + ['b']", "[f'a']", "['\\q']",
     "[b'a']", "(['a'])", "{'a': 'b'}", "['a\n']", "[__import__('os')]", "['" + "\\'" * 1000, "['\\U99999999']",
     "['a'," * 20_000, "[" * 50_000, r"['\ud800']"],
    ids=lambda cell: cell[:12],
)  # fmt: skip
def test_what_is_no_list_of_texts_is_refused_where_a_list_is_expected(cell: str) -> None:
    if cell.startswith("("):
        assert cells_of(cell) == cell
        return
    with pytest.raises(Defect, match=r"golden_answers|lone surrogate|10000 values"):
        cells_of(cell)


@pytest.mark.parametrize(
    "column", ["retrieved_contexts", "contexts", "metadata", "choices", "messages", "excluded_ids"]
)
@pytest.mark.parametrize("cell", ["['a' 'b']", "{'a': 1}", "[nan]", "[{'role': 'user', 'content': 'x'}]"])
def test_a_cell_that_nobody_reads_harms_nobody(column: str, cell: str) -> None:
    table = io.StringIO()
    csv.writer(table).writerows([["question", "gold", column], ["What?", "4", cell]])
    ((_, _, content),) = rows_of(table.getvalue().encode())
    item = datasets.item(lines.fields(content))
    assert (item.question, item.gold) == ("What?", "4")
    with pytest.raises(Defect, match="`choices` must be a list"):
        datasets.item({**lines.fields(content), "choices": cell}, "choice")


def test_the_first_row_names_the_columns_that_are_not_known() -> None:
    names = b'question,anwser,,"a b",caf\xe9,n\x00\n'
    found = [lines.fields(content) for _, _, content in rows_of(names + b"1?,2,0,,,\n2?,3,1,,,\n")]
    assert found == [{"question": "1?", "anwser": None, "a b": None}, {"question": "2?"}]


def test_a_column_of_parquet_that_is_not_known_is_named_as_unread() -> None:
    items = datasets.ItemReader()
    for _, _, content in rows_of(as_parquet([{"question": f"{n}?", "anwser": str(n)} for n in range(3)])):
        items.read(lines.fields(content))
    (warning,) = items.list_warnings()
    assert "`anwser` (did you mean `answer`?)" in warning
