"""Columns of uploads as people have them: other spellings, other programs' names, chosen columns, JSON arrays."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

from mathrag.errors import Invalid, InvalidLine
from mathrag.reading import columns, lines, rows, tables
from mathrag.reading.columns import DOCUMENTS, ITEMS, UPLOADED, Columns
from mathrag.reading.lines import Defect
from mathrag.reading.paths import corpus_lines, dataset_lines
from shared.calls import Expected
from shared.ingest import datasets
from shared.samples import DatasetItem
from tests.unit.shared.ingest.test_uploads import as_parquet

pytestmark = pytest.mark.usefixtures("unpacked_here")


def read_items(content: bytes, name: str, folder: Path, *pairs: str) -> list[DatasetItem]:
    """The items of a file that was uploaded with these `--column` options."""
    file = folder / name
    file.write_bytes(content)
    chosen = Columns(ITEMS, pairs)
    found = dataset_lines(file, pairs=pairs)
    return [datasets.item(lines.fields(line), named=chosen) for _, _, line in found]


# Names


@pytest.mark.parametrize(
    "header", ["Question;Expected answer", "QUESTION;EXPECTED_ANSWER", "question ; expected-answer", "Input;Target"]
)
def test_the_header_of_a_spreadsheet_is_read_as_it_stands(header: str, tmp_path: Path) -> None:
    content = f"\ufeff{header}\r\nWhat is 2+2?;4\r\n".encode()
    (item,) = read_items(content, "sheet.csv", tmp_path)
    assert (item.question, item.gold) == ("What is 2+2?", "4")


def test_a_tab_separated_table_is_read_as_it_stands(tmp_path: Path) -> None:
    (item,) = read_items(b"Question\tGold answer\tLevel\n2+2?\t4\tLevel 5\n", "sheet.tsv", tmp_path)
    assert (item.question, item.gold, item.level) == ("2+2?", "4", "5")


def test_parquet_is_read_in_any_spelling(tmp_path: Path) -> None:
    (item,) = read_items(as_parquet([{"Question": "2+2?", "Answer": "4"}]), "t.parquet", tmp_path)
    assert (item.question, item.gold) == ("2+2?", "4")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.jsonl", b'{"question": "2+2?", "nuggets": ["One is so.", "Two is so."]}\n'),
        ("t.json", b'[{"question": "2+2?", "Nuggets": ["One is so.", "Two is so."]}]'),
        ("t.csv", b'question,nuggets\n2+2?,"[""One is so."", ""Two is so.""]"\n'),
        ("python.csv", b"question,nuggets\n2+2?,\"['One is so.', 'Two is so.']\"\n"),
        ("t.parquet", as_parquet([{"question": "2+2?", "nuggets": ["One is so.", "Two is so."]}])),
    ],
)
def test_nuggets_are_read_from_every_format(name: str, content: bytes, tmp_path: Path) -> None:
    (item,) = read_items(content, name, tmp_path)
    assert item.expected == Expected(nuggets=("One is so.", "Two is so."))


def test_every_known_name_is_found_in_every_spelling() -> None:
    read = Columns(UPLOADED)
    wrong = {
        spelt: found
        for names in UPLOADED.values()
        for name in names
        for spelt in (name, name.upper(), name.replace("_", " ").title(), name.replace("_", "-"))
        if (found := read.find(spelt)) is None or columns.fold(found) != columns.fold(name)
    }
    assert wrong == {}


def test_a_sample_of_inspect_ai_is_read() -> None:
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2+2?"}]
    sample = {"input": chat, "target": ["4", "four"], "id": 3, "metadata": {"subject": "algebra", "level": 2}}
    item = datasets.item(sample)
    assert (item.question, item.gold, item.custom_id) == ("2+2?", "4", "3")
    assert (item.subject, item.level) == ("algebra", "2")
    assert datasets.item({"input": "Which?", "choices": ["x", "y"], "target": "B"}, "choice").gold == "B"


def test_an_example_of_langsmith_is_read() -> None:
    example = {"inputs": {"query": "2+2?"}, "outputs": {"output": "4"}, "id": "a"}
    item = datasets.item(example)
    assert (item.question, item.gold, item.custom_id) == ("2+2?", "4", "a")
    wider = {"inputs": {"question": "2+2?", "style": "brief"}, "outputs": {"answer": "4", "score": 1}}
    assert (datasets.item(wider).question, datasets.item(wider).gold) == ("2+2?", "4")
    assert datasets.item({"inputs": {"question": "2+2?"}, "outputs": None}).gold is None


def test_a_document_of_langchain_is_read() -> None:
    record = datasets.record({"page_content": "Bern is the capital.", "metadata": {"source": "x.pdf"}})
    assert (record.document.text, record.meta) == ("Bern is the capital.", {"source": "x.pdf"})


# Two columns for one field


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            {"question": "?", "Answer": "4", "Expected answer": "5"},
            "has both `Answer` and `Expected answer` with different values; @--column answer=Answer",
        ),
        (
            {"Question": "a", "question": "b"},
            "has both `Question` and `question` with different values; @--column question=Question",
        ),
        (
            {"Prompt text": "?", "User input": "a", "Problem": "b"},
            "has both `Problem` and `User input` with different values; @--column problem=Problem",
        ),
    ],
)
def test_two_columns_for_one_field_are_named_with_the_option_that_chooses(line: dict[str, Any], said: str) -> None:
    with pytest.raises(Defect) as refused:
        datasets.item(line)
    assert str(refused.value) == said.replace("@", "choose the one to read, such as ")


def test_two_columns_with_the_same_value_are_one() -> None:
    item = datasets.item({"Question": "2+2?", "question": "2+2?", "answer": "4", "Target": "4"})
    assert (item.question, item.gold) == ("2+2?", "4")
    assert datasets.item({"Question": None, "question": "2+2?"}).question == "2+2?"


def test_a_defect_names_the_column_as_the_file_does() -> None:
    with pytest.raises(Defect, match=r"^`Expected answer` is an object; write it as a string or a number$"):
        datasets.item({"Question": "?", "Expected answer": {"a": 1}})


# Chosen columns


def test_a_chosen_column_is_read_whatever_it_is_called(tmp_path: Path) -> None:
    content = b"Frage;Antwort;Quelle\r\nWie viel ist 2+2?;4;x\r\nWarum?;;y\r\n"
    first, second = read_items(content, "fragen.csv", tmp_path, "question=Frage", "gold=Antwort")
    assert (first.question, first.gold, second.gold) == ("Wie viel ist 2+2?", "4", None)


def test_a_chosen_column_wins_over_all_other_names_of_its_field() -> None:
    line = {"question": "?", "Answer": "its answer", "Expected answer": "5", "reference": "6", "solution": r"\boxed{7}"}
    assert datasets.item(line, named=Columns(ITEMS, ["answer=Expected answer"])).gold == "5"
    assert (
        datasets.item({"question": "?", "answer": "4", "contexts": ["c"]}, named=Columns(ITEMS, ["gold=answer"])).gold
        == "4"
    )
    assert datasets.record({"text": "a", "Body": "b"}, named=Columns(DOCUMENTS, ["text=body"])).document.text == "b"


def test_columns_of_parquet_can_be_chosen(tmp_path: Path) -> None:
    content = as_parquet([{"Frage": "2+2?", "Antwort": "4", "x": 1}])
    (item,) = read_items(content, "t.parquet", tmp_path, "question=Frage", "answer=Antwort")
    assert (item.question, item.gold) == ("2+2?", "4")


def test_a_chosen_column_that_a_line_lacks_is_named() -> None:
    with pytest.raises(Defect, match=r"^has no column `Frage` for the field `question`; its columns: Question, id$"):
        datasets.item({"Question": "?", "id": 1}, named=Columns(ITEMS, ["question=Frage"]))


@pytest.mark.parametrize(
    ("pairs", "message", "hint"),
    [
        (["question"], "'question' is not of the form FIELD=COLUMN", "write for example question=prompt"),
        (["question="], "'question=' is not of the form FIELD=COLUMN", "write for example question=prompt"),
        (["qustion=x"], "unknown field 'qustion'", "did you mean 'question'?"),
        (["gold=x", "answer=y"], "'gold' is given twice", "name one column for it"),
    ],
)
def test_a_choice_that_cannot_be_read_says_what_to_write(pairs: list[str], message: str, hint: str) -> None:
    with pytest.raises(Invalid) as refused:
        Columns(ITEMS, pairs)
    assert message in refused.value.message
    assert hint in (refused.value.hint or "")


# JSON arrays


def read_array(content: bytes, longest: int = 1 << 20) -> list[tuple[int, Any]]:
    found = rows.read(io.BytesIO(content), "a.json", longest=longest)
    return [(number, line if isinstance(line, Defect) else lines.fields(line)) for _, number, line in found]


MEMBERS = [{"text": 'a, "]}" b'}, {"text": "ä", "meta": {"x": [1, {}]}}, {"text": "c"}]


@pytest.mark.parametrize("indent", [None, 0, 4])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_an_array_is_read_however_it_is_laid_out(indent: int | None, mark: bytes) -> None:
    content = mark + json.dumps(MEMBERS, indent=indent, ensure_ascii=False).encode() + b"\n"
    assert read_array(content) == list(enumerate(MEMBERS, 1))


def test_an_array_that_is_larger_than_the_buffer_is_read_to_its_end() -> None:
    many = [{"text": f"{number} " + "x" * 40_000} for number in range(100)]
    found = read_array(json.dumps(many, indent=1).encode(), longest=50_000)
    assert [line["text"].split()[0] for _, line in found] == [str(number) for number in range(100)]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'[{"text": "a"} {"text": "b"}]', "line 2: the array of objects is not valid here (found"),
        (b'[{"text": "a"},]', "line 2: the array of objects is not valid here (found ']')"),
        (b'[{"text": "a"}', "line 2: the array of objects is not valid here (found the end of the file)"),
        (b'[{"text": "a', "line 1: is truncated; copy the file again"),
        (b'[{"text": "a"}]\n[]', "line 1: has more text after the array ('[]')"),
        (b'["a", "b"]', "line 1: the array of objects is not valid here"),
        (b'[{"text": "' + b"x" * 100 + b'"}]', "line 1: is longer than 60 bytes"),
    ],
)
def test_an_array_that_is_broken_says_where(content: bytes, said: str) -> None:
    with pytest.raises(InvalidLine) as refused:
        read_array(content, longest=60)
    assert said in refused.value.message


def test_a_member_that_is_no_json_rejects_only_itself() -> None:
    found = read_array(b'[\n{"text": "a"},\n{"text"\n: b},\n{"text": "c"}]')
    assert [isinstance(line, Defect) for _, line in found] == [False, True, False]


def test_an_object_around_the_rows_says_how_to_unpack_it() -> None:
    with pytest.raises(Defect, match=r"upload these alone: jq '\.questions' FILE > rows\.json"):
        datasets.item({"questions": [{"question": "a"}]})


def test_an_object_on_several_lines_says_how_to_write_it(tmp_path: Path) -> None:
    (tmp_path / "q.json").write_text('{\n  "text": "a"\n}\n')
    reader = lines.Reader(
        corpus_lines(tmp_path / "q.json"), lambda line, _: datasets.record(line), datasets.document_id
    )
    with pytest.raises(InvalidLine, match=r"jq -c \. FILE"):
        list(reader)


def test_a_header_without_a_known_column_names_the_option(tmp_path: Path) -> None:
    with pytest.raises(InvalidLine, match=r"or name one: --column question=COLUMN$"):
        list(tables.rows(io.BytesIO(b"Frage;Antwort\n?;4\n"), "f.csv", 1000))
