"""The documents of another system's answers, as lines of a file name them."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from mathrag.reading import lines
from mathrag.reading.answers import make_mapping, read_answers
from mathrag.reading.lines import Defect
from shared.ingest.answers import MAX_CONTEXT_LENGTH, MOST_CONTEXTS, AnswerReader, ImportedAnswer, ItemIndex
from shared.samples import Given

LINE = {"index": 0, "text": "It is 4."}


def read(*columns: str, **fields: Any) -> ImportedAnswer:
    return AnswerReader(ItemIndex([("q", "?")]), make_mapping(columns))(LINE | fields, 1)


def read_cell(folder: Path, column: str, cell: str, *columns: str) -> ImportedAnswer:
    path, mapping = folder / "answers.csv", make_mapping(columns)
    path.write_text(f'index,text,{column}\n0,It is 4.,"{cell}"\n')
    [(_, number, row)] = read_answers(path, mapping)
    return AnswerReader(ItemIndex([("q", "?")]), mapping)(lines.fields(row), number)


def texts(answer: ImportedAnswer) -> list[str] | None:
    return None if answer.given.contexts is None else [each.text for each in answer.documents]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, None),
        ({"contexts": None}, None),
        ({"contexts": []}, []),
        ({"contexts": ["a", "b", "a"]}, ["a", "b", "a"]),
        ({"retrieved_contexts": ["a"]}, ["a"]),
        ({"Retrieval Context": ["a"]}, ["a"]),
        ({"retrieval_context": "a|b"}, ["a", "b"]),
        ({"context": ["a"]}, ["a"]),
        ({"context": "a text"}, None),
        ({"context": ["what should be found"], "retrieval_context": ["a"]}, ["a"]),
        ({"context": ["what should be found"], "retrieval_context": None}, None),
    ],
)
def test_contexts_have_the_names_of_ragas_and_deepeval(fields: dict[str, Any], expected: list[str] | None) -> None:
    assert texts(read(**fields)) == expected


def test_another_column_may_be_chosen() -> None:
    assert texts(read("contexts=passages", passages=["a"], context=["b"])) == ["a"]


@pytest.mark.parametrize(
    ("column", "cell", "expected"),
    [
        ("contexts", '[""a"", ""b""]', ["a", "b"]),
        ("retrieved_contexts", "['a', \"\"it's\"\", 'x\\ny']", ["a", "it's", "x\ny"]),
        ("contexts", "[]", []),
        ("contexts", "", None),
        ("context", "a text", None),
        ("context", "[see 1] a text", None),
        ("context", "['a']", ["a"]),
    ],
)
def test_a_cell_is_a_list_of_json_or_as_pandas_writes_it(
    tmp_path: Path, column: str, cell: str, expected: list[str] | None
) -> None:
    assert texts(read_cell(tmp_path, column, cell)) == expected


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("a text", "`contexts` is a string; write a list of texts"),
        ("['a' 'b']", "`contexts` is not JSON"),
        ("[__import__('os')]", "`contexts` is not JSON"),
        ("{'a': 1}", "`contexts` is not JSON"),
        ("[1]", "text 1 of `contexts` is a number"),
        ("[" * 500, "`contexts` is not JSON"),
        ("[" + "1," * 20_000 + "1]", "contains more than 10000 values"),
    ],
)  # fmt: skip
def test_a_cell_that_is_no_list_of_texts_is_a_defect(tmp_path: Path, cell: str, said: str) -> None:
    with pytest.raises(Defect) as found:
        read_cell(tmp_path, "contexts", cell)
    assert said in str(found.value)


@pytest.mark.parametrize(
    ("contexts", "said"),
    [
        ("a text", "`contexts` is a string"),
        ({"a": "b"}, "`contexts` is an object"),
        (3, "`contexts` is a number"),
        ([None], "text 1 of `contexts` is null"),
        (["a", ["b"]], "text 2 of `contexts` is an array"),
        (["a"] * (MOST_CONTEXTS + 1), "`contexts` has 101 texts, more than 100"),
        (["a", "x" * (MAX_CONTEXT_LENGTH + 1)], "text 2 of `contexts` has 100001 characters, more than 100000"),
    ],
)
def test_contexts_that_cannot_be_used_are_a_defect(contexts: Any, said: str) -> None:
    with pytest.raises(Defect) as found:
        read(contexts=contexts)
    assert said in str(found.value)


def test_contexts_within_the_limits_are_read() -> None:
    assert len(read(contexts=["x" * MAX_CONTEXT_LENGTH] * MOST_CONTEXTS).documents) == MOST_CONTEXTS


def test_given_answers_of_older_releases_are_read() -> None:
    stored = b'{"text":"It is 4.","score":1.0,"completion_tokens":7}'
    given = msgspec.json.decode(stored, type=Given)
    assert given == Given(text="It is 4.", score=1.0, completion_tokens=7)
    assert (given.contexts, given.passage, given.outcome) == (None, "", None)
