"""Corpora and datasets: lines and folders of every known shape."""

import contextlib
import io
import json
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mathrag.errors import Invalid, InvalidLine, NotFound
from mathrag.reading import rows
from mathrag.reading.lines import MAX_LINE_BYTES, Content, EmptyText, Reader
from mathrag.reading.paths import corpus_lines, dataset_lines
from services.retriever.index import Bm25
from shared import canonical
from shared.calls import MAX_QUESTION
from shared.ingest.datasets import (
    ItemReader,
    draw_stratified,
    question_id,
    read_corpus,
    read_corpus_line,
    read_dataset,
    read_dataset_line,
)
from shared.rag.prompts import detect_language, localise
from shared.replies import CorpusRecord
from shared.samples import DatasetItem, FactQuery, Lead
from tests.unit.cases import named
from tests.unit.datasets import DATA, needs
from tools.bench.comparison import last_clause, passages, questions
from tools.bench.stack import as_lines

# Chinese problems: what a question is made of, and that BM25 finds them in the real collection.


CMATH = DATA / "zh" / "cmath-test.jsonl"
TEA = {"question": "妈咪买了3盒茶叶，一盒茶叶有6小包，一共买了多少小包茶叶？", "golden": "18"}
HARES = {"question": "黑兔有5只，白兔有8只。黑兔比白兔少多少只", "golden": "3"}


@pytest.fixture(scope="module")
def problems() -> list[dict[str, Any]]:
    if not CMATH.exists():
        pytest.skip(f"{CMATH.name} is not part of the repository, and is absent here")
    return [json.loads(line) for line in CMATH.read_text("utf-8").splitlines()]


def test_a_question_is_the_last_clause_of_its_problem() -> None:
    assert last_clause(TEA["question"]) == "一共买了多少小包茶叶"
    assert last_clause(HARES["question"]) == "黑兔比白兔少多少只"


def test_questions_name_the_document_that_they_were_taken_from() -> None:
    asked = list(questions([TEA, HARES] * 50, 50))
    documents = {each["id"]: each["text"] for each in passages([TEA, HARES] * 50)}
    assert len(asked) == 50
    assert all(each["question"] in documents[each["gold_documents"][0]] for each in asked)
    assert asked[-1]["id"] == "98"


def test_a_passage_is_read_as_a_document_without_a_problem() -> None:
    (line,) = as_lines(passages([TEA]))
    document = read_corpus_line(json.loads(line), "zh", 1).document
    assert (document.problem, document.text) == ("", f"{TEA['question']}\n答案：18")


def test_bm25_finds_the_problem_that_a_clause_is_from(problems: list[dict[str, Any]]) -> None:
    index = Bm25().build([[(each["id"], each["text"]) for each in passages(problems)]])
    asked = list(questions(problems, len(problems)))
    found = index.search([each["question"] for each in asked], 10)
    ranks = [
        [match.document for match in matches].index(each["id"]) if each["id"] in {m.document for m in matches} else 10
        for each, matches in zip(asked, found, strict=True)
    ]
    assert sum(rank == 0 for rank in ranks) / len(ranks) >= 0.9
    assert sum(rank < 10 for rank in ranks) / len(ranks) >= 0.99


def test_every_question_of_the_collection_is_put_in_chinese(problems: list[dict[str, Any]]) -> None:
    asked = [each["question"] for each in questions(problems, len(problems))]
    spoken = [text for text in asked + [each["question"] for each in problems] if not text.isascii()]
    assert {detect_language(text) for text in spoken} == {"zh"}
    assert localise("cot", spoken[0]) == "cot-zh"


# Corpus lines: every known shape becomes a document, every defect a sentence that names line, field and fix.


def corpus_record(**fields: Any) -> CorpusRecord:
    return read_corpus_line(json.dumps(fields), "corpus.jsonl", 1)


def corpus_refusal(raw: Content) -> str:
    try:
        read_corpus_line(raw, "corpus.jsonl", 7)
    except InvalidLine as refused:
        place, named_first, said = refused.message.partition("corpus.jsonl, line 7: ")
        return said if (place, refused.line) == ("", 7) and named_first else f"(line {refused.line})"
    return "(it can be used)"


def write(folder: Path, files: dict[str, str | bytes]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


# What is understood


def test_reads_math_500_as_a_corpus() -> None:
    record = corpus_record(
        problem="1+1?", solution="It is 2.", answer="2", subject="Algebra", level=2, unique_id="test/1.json"
    )
    assert record.external_id == "test/1.json"
    assert (record.document.problem, record.document.text) == ("1+1?", "It is 2.")
    assert record.meta == {"subject": "Algebra", "level": "2"}


def test_levels_of_both_spellings_are_the_same() -> None:
    cases = [(5, "5"), ("Level 5", "5"), ("5", "5"), ("hard", "hard"), ("Level ?", None), (None, None)]
    wrong = [
        (level, found)
        for level, expected in cases
        if (found := named(corpus_record, text="x", level=level).meta.get("level")) != expected
    ]
    assert wrong == []


@pytest.mark.parametrize("name", ["subject", "type", "topic"])
def test_subject_has_three_names(name: str) -> None:
    assert corpus_record(text="x", **{name: "Geometry"}).meta == {"subject": "Geometry"}


def test_reads_beir_with_the_title_as_first_line() -> None:
    record = corpus_record(_id="d1", title="A title", text="The body.", metadata={"year": 1962})
    assert record.external_id == "d1"
    assert record.document.text == "A title\nThe body."
    assert record.document.problem == ""
    assert record.meta == {"year": 1962}


def test_title_alone_is_text_enough() -> None:
    assert corpus_record(_id="d1", title="A title", text="").document.text == "A title"


@pytest.mark.parametrize("name", ["text", "contents", "content", "page_content", "body", "passage", "document"])
def test_reads_plain_objects(name: str) -> None:
    record = corpus_record(id=12, problem="Why?", meta={"a": 1}, **{name: " Because. "})
    assert record.external_id == "12"
    assert (record.document.problem, record.document.text) == ("Why?", "Because.")
    assert record.meta == {"a": 1}


def test_reads_gsm8k_without_its_calculator_notes() -> None:
    record = corpus_record(question="How many?", answer="She sold 48/2 = <<48/2=24>>24 clips.\n#### 24")
    assert record.document.problem == "How many?"
    assert record.document.text == "She sold 48/2 = 24 clips.\n#### 24"
    assert record.external_id is None


@pytest.mark.parametrize(
    "raw", [b'\xef\xbb\xbf{"text": "x"}', b'{"text": "x"}\r\n', b'  {"text": "x"}\t\n', '\ufeff{"text": "x"}']
)
def test_tolerates_byte_order_mark_carriage_return_and_blanks(raw: bytes | str) -> None:
    assert read_corpus_line(raw, "corpus.jsonl", 1).document.text == "x"


def test_chinese_and_whole_surrogate_pairs_are_text() -> None:
    record = read_corpus_line(r'{"text": "\ud83d\ude00 三角形 \\underline{x} \\u0000"}', "corpus.jsonl", 1)
    assert record.document.text == r"😀 三角形 \underline{x} \u0000"


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")).filter(str.strip))
def test_any_text_survives(text: str) -> None:
    assert corpus_record(text=text).document.text == text.strip()


# What is refused


def test_defect_of_a_corpus_line_names_field_and_fix() -> None:
    cases = [
        (b"{", "is not JSON"),
        (b'{"text": NaN}', "`text` is NaN, which JSON does not allow; write it as a string"),
        (b'{"text": "x", "meta": {"a": 1e999}}', "`meta` is an object with 1e999, which is out of range, not a JSON"),
        (b"[" * 5_000, "nested too deeply"),
        (b'["text"]', "contains an array; write one object"),
        (b"12", "contains a number"),
        (b"null", "contains null"),
        (b"", "is empty; remove the line"),
        (b'{"text": "caf\xe9"}', "is not UTF-8 (byte 13); save the file as UTF-8"),
        ('{"text": "x"}'.encode("utf-16"), "NUL byte"),
        (b'{"text": "a\x00"}', "NUL byte"),
        (rb'{"text": "a\u0000b"}', r"contains the character \u0000; remove it"),
        (rb'{"text": "x", "meta": {"\u0000": 1}}', r"contains the character \u0000"),
        (rb'{"text": "a\ud800b"}', "lone surrogate"),
        (rb'{"text": "x", "meta": [["\udfff"]]}', "lone surrogate"),
        ('{"text": "\ud800"}', "lone surrogate"),
        (b"version https://git-lfs.github.com/spec/v1", "Git LFS pointer, not the data; run `git lfs pull`"),
        (b'{"text": "x"}\r{"text": "y"}', "contains a lone carriage return; end lines with"),
        (
            b'{"text": "x", "contents": "y"}',
            "has both `text` and `contents` with different values; choose the one to read",
        ),
        (b'{"text": "x", "problem": "y", "question": "z"}', "has both `problem` and `question`"),
        (b'{"id": "1"}', "has no text (it has id); write it into `text`, or name its column: --column text="),
        (b'{"text": null}', "has no text"),
        (b'{"text": ["x"]}', "`text` is an array; write it as a string"),
        (b'{"text": "x", "problem": 3}', "`problem` is a number"),
        (b'{"text": "x", "title": {}}', "`title` is an object"),
        (b'{"text": "x", "id": ""}', "`id` is empty"),
        (b'{"text": "x", "id": true}', "`id` is a boolean; write it as a string or a number"),
        (b'{"text": "x", "_id": ["a"]}', "`_id` is an array"),
        (b'{"text": "x", "meta": "a"}', "`meta` is a string, not a JSON object"),
        (b'{"text": "x", "level": [5]}', "`level` is an array"),
    ]
    wrong = {raw[:80]: said for raw, expected in cases if expected not in (said := named(corpus_refusal, raw))}
    assert wrong == {}


@pytest.mark.parametrize("fields", [{"text": ""}, {"text": " \n "}, {"_id": "471", "title": "", "text": ""}])
def test_empty_text_is_told_apart(fields: dict[str, str]) -> None:
    with pytest.raises(EmptyText, match="has an empty text"):
        corpus_record(**fields)


def test_a_repeated_id_names_both_lines() -> None:
    lines = [("a", 1, b'{"id": "x", "text": "1"}'), ("a", 2, b'{"text": "2"}'), ("a", 3, b'{"text": "2"}')]
    assert len(list(read_corpus(lines))) == 3
    with pytest.raises(InvalidLine, match=r"^a, line 4: repeats the id 'x' of a, line 1; rename one$"):
        list(read_corpus([*lines, ("a", 4, b'{"id": "x", "text": "4"}')]))


# Files and folders


def test_jsonl_file_skips_blank_lines_and_counts_them(tmp_path: Path) -> None:
    write(tmp_path, {"c.jsonl": b'\xef\xbb\xbf{"text": "1"}\r\n\r\n{"text": "2"}'})
    lines = list(corpus_lines(tmp_path / "c.jsonl"))
    assert [(source, number) for source, number, _ in lines] == [("c.jsonl", 1), ("c.jsonl", 3)]
    assert [record.document.text for record in read_corpus(lines)] == ["1", "2"]


def test_a_line_over_the_limit_is_never_held_whole(tmp_path: Path) -> None:
    write(tmp_path, {"c.jsonl": b"x" * (3 * MAX_LINE_BYTES) + b'\n{"text": "2"}\n'})
    (_, first, long), (_, second, short) = corpus_lines(tmp_path / "c.jsonl")
    assert (first, second) == (1, 2)
    assert f"longer than {MAX_LINE_BYTES} bytes" in corpus_refusal(long)
    assert read_corpus_line(short, "c.jsonl", 2).document.text == "2"


@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b""])
def test_a_line_at_the_limit_is_read(tmp_path: Path, ending: bytes) -> None:
    line = b'{"text": "' + b"x" * (MAX_LINE_BYTES - 12) + b'"}'
    write(tmp_path, {"c.jsonl": b"\xef\xbb\xbf" + line + ending})
    [record] = read_corpus(corpus_lines(tmp_path / "c.jsonl"))
    assert len(record.document.text) == MAX_LINE_BYTES - 12


def problem(n: int) -> str:
    return json.dumps({"problem": f"p{n}", "level": "Level 1", "type": "Algebra", "solution": f"s{n}"}, indent=2)


def test_math_folder_in_natural_order(tmp_path: Path) -> None:
    write(tmp_path, {f"{name}.json": problem(1) for name in ("geometry/1", "algebra/10", "algebra/2")})
    records = list(read_corpus(corpus_lines(tmp_path)))
    assert [record.external_id for record in records] == ["algebra/2.json", "algebra/10.json", "geometry/1.json"]
    assert records[0].meta == {"subject": "Algebra", "level": "1"}


def test_math_folder_with_splits_takes_the_training_part(tmp_path: Path) -> None:
    write(tmp_path, {"train/algebra/1.json": problem(1), "test/algebra/2.json": problem(2)})
    assert [record.external_id for record in read_corpus(corpus_lines(tmp_path))] == ["train/algebra/1.json"]
    assert len(list(corpus_lines(tmp_path, split="test"))) == 1


def test_math_folder_names_the_broken_file(tmp_path: Path) -> None:
    write(tmp_path, {"algebra/1.json": "{"})
    with pytest.raises(InvalidLine, match=r"^algebra/1.json, line 1: is not JSON"):
        list(read_corpus(corpus_lines(tmp_path)))


def test_beir_folder(tmp_path: Path) -> None:
    write(tmp_path, {"corpus.jsonl": '{"_id": "a", "title": "", "text": "x"}\n', "queries.jsonl": "{}"})
    assert [record.external_id for record in read_corpus(corpus_lines(tmp_path))] == ["a"]


@pytest.mark.parametrize("name", ["c.dat", "c.json", "other/x.png"])
def test_unknown_layout_lists_the_known_ones(tmp_path: Path, name: str) -> None:
    write(tmp_path, {name: "x"})
    with pytest.raises(Invalid, match="has no known layout") as caught:
        list(corpus_lines(tmp_path / name.split("/", maxsplit=1)[0]))
    words = ("JSONL", "CSV", "Parquet", "MATH folder", "BEIR folder", "AutoRAG", "FlashRAG", "Markdown")
    assert all(word in str(caught.value.hint) for word in words)


def test_missing_path(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"nowhere\.jsonl"):
        corpus_lines(tmp_path / "nowhere.jsonl")


# Whatever comes in

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.sampled_from(
    ["text", "contents", "solution", "title", "problem", "question", "answer", "meta", "metadata", "id", "_id", "level"]
)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_record_or_a_refusal(raw: bytes) -> None:
    with contextlib.suppress(InvalidLine):
        read_corpus_line(raw, "corpus.jsonl", 1)


@given(st.dictionaries(NAMES, JSON, max_size=6))
def test_any_object_is_a_storable_record_or_a_refusal(fields: dict[str, Any]) -> None:
    with contextlib.suppress(InvalidLine):
        record = read_corpus_line(json.dumps(fields), "corpus.jsonl", 1)
        assert len(record.document.hash) == 64
        assert "\0" not in record.document.problem + record.document.text + (record.external_id or "")
        assert json.loads(canonical.encode(record.meta)) == record.meta


@given(st.dictionaries(NAMES, JSON, max_size=6))
def test_any_object_is_an_item_or_a_refusal(fields: dict[str, Any]) -> None:
    with contextlib.suppress(InvalidLine):
        item = read_dataset_line(json.dumps(fields), "items.jsonl", 1)
        assert item.question.strip()
        assert item.gold is None or item.gold.strip() == item.gold


@given(st.lists(st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=20), max_size=8))
def test_numbers_of_lines_are_those_of_an_editor(texts: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "c.jsonl"
        file.write_bytes("\r\n".join(texts).encode())
        found = [(number, raw.strip().decode()) for _, number, raw in corpus_lines(file)]
    expected = [(number, text.encode().strip().decode()) for number, text in enumerate(texts, start=1)]
    assert found == [(number, text) for number, text in expected if text]


# A sample of a dataset: every kind has its share, and the same seed is the same sample.

LABELS = ["algebra"] * 60 + ["geometry"] * 30 + ["precalculus"] * 10


def test_every_subject_has_its_share_of_a_sample() -> None:
    chosen = draw_stratified(LABELS, 20, seed=1)
    assert Counter(LABELS[position] for position in chosen) == {"algebra": 12, "geometry": 6, "precalculus": 2}
    assert chosen == sorted(chosen)


def test_a_sample_has_the_wanted_size_even_where_shares_are_no_whole_numbers() -> None:
    labels = [label for label in "abc" for _ in range(7)]
    chosen = draw_stratified(labels, 10, seed=1)
    assert len(set(chosen)) == 10
    assert max(Counter(labels[position] for position in chosen).values()) == 4


def test_a_sample_is_a_function_of_its_seed() -> None:
    assert draw_stratified(LABELS, 20, seed=1) == draw_stratified(LABELS, 20, seed=1)
    assert draw_stratified(LABELS, 20, seed=1) != draw_stratified(LABELS, 20, seed=2)


def test_all_of_them_are_a_sample_too() -> None:
    assert draw_stratified(LABELS, len(LABELS), seed=3) == list(range(len(LABELS)))


def test_more_than_there_are_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot draw 101 items from 100"):
        draw_stratified(LABELS, 101, seed=1)


# Dataset lines: questions, gold answers and gold documents of every known shape.


def dataset_item(**fields: Any) -> DatasetItem:
    return read_dataset_line(json.dumps(fields), "items.jsonl", 1)


def dataset_refusal(fields: dict[str, Any]) -> str:
    try:
        dataset_item(**fields)
    except InvalidLine as refused:
        place, named_first, said = refused.message.partition("items.jsonl, line 1: ")
        return said if named_first and not place else "(another line)"
    return "(it can be used)"


def test_reads_math_500_as_a_dataset() -> None:
    item = dataset_item(
        problem="p", solution=r"\boxed{3}", answer="4", subject="Algebra", level=2, unique_id="test/algebra/1.json"
    )
    assert item == DatasetItem(
        question="p", gold="4", gold_documents=None, subject="Algebra", level="2", custom_id="test/algebra/1.json"
    )


def test_question_has_seven_names() -> None:
    assert {
        name: found
        for name in ["question", "problem", "query", "user_input", "prompt", "input", "text"]
        if (found := named(dataset_item, **{name: " why? "}).question) != "why?"
    } == {}


def test_gold_has_eight_names() -> None:
    assert {
        name: found
        for name in ["answer", "gold", "expected_answer", "gt", "golden", "target", "expected", "expected_output"]
        if (found := named(dataset_item, question="q", **{name: "18"}).gold) != "18"
    } == {}


def test_id_has_five_names() -> None:
    assert {
        name: found
        for name in ["custom_id", "id", "unique_id", "_id", "qid"]
        if (found := named(dataset_item, question="q", **{name: 7}).custom_id) != "7"
    } == {}


def test_gold_answer() -> None:
    cases = [
        ({"answer": 18}, "18"),
        ({"answer": 0}, "0"),
        ({"answer": 1.5}, "1.5"),
        ({"answer": " 5 "}, "5"),
        ({"answer": "48/2 = <<48/2=24>>24\n#### 1,024"}, "1024"),
        ({"solution": r"First \boxed{1}, then \boxed{\frac{1}{2}}."}, r"\frac{1}{2}"),
        ({"answer": "unfinished ####"}, None),
        ({"solution": "no box"}, None),
        ({"answer": None, "solution": r"\boxed 5"}, "5"),
        ({}, None),
    ]
    wrong = [
        (fields, found) for fields, gold in cases if (found := named(dataset_item, question="q", **fields).gold) != gold
    ]
    assert wrong == []


def test_gold_documents_as_list_or_with_grades() -> None:
    cases = [
        (["a", "b"], {"a": 1, "b": 1}),
        ({"a": 2, "b": 1}, {"a": 2, "b": 1}),
        ([["a"], ["b", "c"]], {"a": 1, "b": 1, "c": 1}),
        ("a", {"a": 1}),
        ([7], {"7": 1}),
        ([], {}),
        ([[]], {}),
        (None, None),
    ]
    wrong = [
        (value, found)
        for value, expected in cases
        if (found := named(dataset_item, question="q", gold_documents=value).gold_documents) != expected
    ]
    assert wrong == []


def test_defect_of_a_dataset_line_names_field_and_fix() -> None:
    cases = [
        ({"answer": "4"}, "has no question (it has answer); write it into `question`, or name its column: --column"),
        ({"question": 4}, "`question` is a number"),
        ({"question": "q", "answer": {"a": "4"}}, "`answer` is an object; write it as a string or a number"),
        ({"question": "q", "answer": ["4", None]}, "`answer` is null; write it as a string or a number"),
        ({"question": "q", "problem": "p"}, "has both `question` and `problem` with different values"),
        ({"question": "q", "answer": "4", "gold": "5"}, "has both `answer` and `gold` with different values"),
        ({"messages": [{"role": "user", "content": "a"}] * 2}, "`messages` does not hold exactly one question"),
        ({"messages": [{"role": "user"}]}, "`messages` does not hold exactly one question"),
        ({"messages": "hi"}, "has no question"),
        ({"user_input": [{"content": "hi"}]}, "`user_input` does not hold exactly one question"),
        ({"user_input": {"content": "hi"}}, "has no question"),
        ({"rows": [{"question": "q"}]}, "has no question, but all rows in `rows`; upload these alone: jq '.rows'"),
        ({"question": "q", "answer": "4", "contexts": ["c"]}, "may be a system's answer or the expected one"),
        ({"question": "q", "answer": " "}, "`answer` is empty"),
        ({"question": "q", "answer": True}, "`answer` is a boolean"),
        ({"question": "q", "solution": 4}, "`solution` is a number"),
        ({"question": "q", "gold_documents": [None]}, "`gold_documents` is null"),
        ({"question": "q", "gold_documents": [["a", {}]]}, "`gold_documents` is an object"),
        ({"question": "q", "gold_documents": True}, "`gold_documents` is a boolean"),
        (
            {"question": "q", "gold_documents": {"a": "1"}},
            "`gold_documents` must be a list of ids, or an object of ids and whole numbers",
        ),
        ({"question": "q", "gold_documents": {"a": True}}, "`gold_documents` must be"),
        ({"question": "q", "nuggets": ["a", " "]}, "`nuggets` is empty; write a value or remove the field"),
        ({"question": "q", "nuggets": ["a", None]}, "`nuggets` is null; write it as a string"),
        ({"question": "q", "nuggets": {"text": "a"}}, "`nuggets` is an object; write it as a string"),
        ({"question": "q", "nuggets": [{"text": "a"}]}, "`nuggets` is an object; write it as a string"),
        (
            {"question": "q", "nuggets": [f"{n} is so." for n in range(21)]},
            "`nuggets` has 21 texts, more than 20; keep those that a complete answer needs",
        ),
        (
            {"question": "q", "nuggets": ["a", "x" * 1001]},
            "`nuggets` has a text of 1001 characters, more than 1000; split it, or shorten it",
        ),
    ]
    wrong = {
        str(fields): said for fields, expected in cases if expected not in (said := named(dataset_refusal, fields))
    }
    assert wrong == {}


def test_several_expected_answers_are_kept_in_order() -> None:
    cases = [
        ({"golden_answers": ["Paris", "the city of Paris"]}, "Paris", ("the city of Paris",)),
        ({"golden_answers": ["1/2", "\\frac{1}{2}", " 1/2 "]}, "1/2", ()),
        ({"golden_answers": []}, None, ()),
        ({"golden_answers": [7]}, "7", ()),
        ({"generation_gt": ["4", "5", "6", "5"]}, "4", ("5", "6")),
        ({"generation_gt": "4"}, "4", ()),
        ({"reference": "4", "response": "5"}, "4", ()),
        ({"ground_truth": "4", "answer": "5", "contexts": ["c"]}, "4", ()),
        ({"ground_truths": ["4"], "answer": "5"}, "4", ()),
        ({"gold": "4", "contexts": ["c"]}, "4", ()),
    ]
    wrong = {}
    for fields, gold, others in cases:
        item = named(dataset_item, question="q", **fields)
        found = item.gold, item.expected.golds if item.expected else ()
        if found != (gold, others):
            wrong[str(fields)] = found
    assert wrong == {}


def test_nuggets_are_kept_in_order_without_repetitions() -> None:
    cases: list[tuple[object, tuple[str, ...]]] = [
        (["One is so.", " Two is so. ", "One is so."], ("One is so.", "Two is so.")),
        ("One is so.", ("One is so.",)),
        (["x" * 1000] + [str(n) for n in range(19)], ("x" * 1000, *(str(n) for n in range(19)))),
        ([], ()),
        (None, ()),
    ]
    for given_nuggets, kept in cases:
        item = dataset_item(question="q", nuggets=given_nuggets)
        assert (item.expected.nuggets if item.expected else ()) == kept


def test_a_bad_nugget_is_refused_with_its_line() -> None:
    with pytest.raises(InvalidLine, match=r"q.jsonl, line 7: `nuggets` is empty"):
        read_dataset_line(json.dumps({"question": "q", "nuggets": [""]}), "q.jsonl", 7)


def test_an_item_without_nuggets_is_hashed_as_before() -> None:
    stored = "1ff476cee9be6aa0d6de8ecfaa0d6dd20553526b631eddb6edc1bf8644be9861"
    fields = {"question": "q", "golden_answers": ["4", "5"]}
    assert canonical.digest(dataset_item(**fields)).hex() == stored
    assert canonical.digest(dataset_item(**fields, nuggets=[])).hex() == stored
    assert canonical.digest(dataset_item(**fields, nuggets=["One is so."])).hex() != stored


def test_an_item_without_alternatives_is_hashed_as_before() -> None:
    encoded = canonical.encode(dataset_item(question="q", answer="4", choices=["4", "5"], rubric="r"))
    assert b"alternatives" not in encoded
    assert b"expected" not in encoded


def test_a_chat_of_one_question_is_a_question() -> None:
    chat = [{"role": "system", "content": "s"}, {"role": "user", "content": "why?"}, {"role": "assistant"}]
    assert dataset_item(messages=chat, answer="18").question == "why?"
    with pytest.raises(EmptyText, match="`messages` is empty"):
        dataset_item(messages=[{"role": "user", "content": " "}])


def test_empty_question_is_told_apart() -> None:
    with pytest.raises(EmptyText, match="`question` is empty"):
        dataset_item(question=" ")


def test_a_question_that_no_search_would_take_is_refused_with_its_line() -> None:
    longest = json.dumps({"question": "x" * MAX_QUESTION})
    assert len(read_dataset_line(longest, "q.jsonl", 1).question) == MAX_QUESTION
    with pytest.raises(InvalidLine, match=r"q.jsonl, line 7: `question` has 32769 characters"):
        read_dataset_line(json.dumps({"question": "x" * (MAX_QUESTION + 1)}), "q.jsonl", 7)


def test_repeated_id_names_both_lines() -> None:
    lines = [("a", number, b'{"id": 1, "question": "q"}') for number in (1, 2)]
    with pytest.raises(InvalidLine, match="line 2: repeats the id '1' of a, line 1"):
        list(read_dataset(lines))


def test_math_folder_takes_the_test_part(tmp_path: Path) -> None:
    content = json.dumps({"problem": "p", "level": "Level 3", "type": "Algebra", "solution": r"\boxed{7}"})
    write(tmp_path, {"train/algebra/1.json": content, "test/algebra/2.json": content})
    [item] = read_dataset(dataset_lines(tmp_path))
    assert (item.custom_id, item.gold, item.level) == ("test/algebra/2.json", "7", "3")


QUERIES = '{"_id": "q1", "text": "one"}\n{"_id": "q2", "text": "two"}\n{"_id": "q3", "text": "three"}\n'
QRELS = "query-id\tcorpus-id\tscore\r\nq1\td1\t2\r\nq1\td2\t0\r\nq3\td1\t1\r\n\r\n"


def test_beir_folder_joins_queries_with_graded_judgements(tmp_path: Path) -> None:
    write(tmp_path, {"queries.jsonl": QUERIES, "qrels/test.tsv": QRELS, "qrels/dev.tsv": "q2\td9\t1\n"})
    items = list(read_dataset(dataset_lines(tmp_path)))
    assert [(item.custom_id, item.gold_documents) for item in items] == [("q1", {"d1": 2}), ("q3", {"d1": 1})]
    assert [item.custom_id for item in read_dataset(dataset_lines(tmp_path, split="dev"))] == ["q2"]


def test_beir_split_that_is_not_there_lists_those_that_are(tmp_path: Path) -> None:
    write(tmp_path, {"queries.jsonl": QUERIES, "qrels/dev.tsv": "", "qrels/train.tsv": ""})
    with pytest.raises(Invalid, match="split 'test'") as caught:
        dataset_lines(tmp_path)
    assert caught.value.hint == "choose one of its splits: --split dev or --split train"


@pytest.mark.parametrize(
    ("row", "expected"),
    [("q1\td1", "has 2 columns"), ("q1 d1 1", "has 1 column,"), ("q1\td1\thigh", "score 'high' is not a whole number")],
)
def test_judgement_that_cannot_be_read(tmp_path: Path, row: str, expected: str) -> None:
    write(tmp_path, {"queries.jsonl": QUERIES, "qrels/test.tsv": f"query-id\tcorpus-id\tscore\n{row}\n"})
    with pytest.raises(InvalidLine, match=r"^qrels/test.tsv, line 2: ") as caught:
        dataset_lines(tmp_path)
    assert expected in caught.value.message


def test_beir_query_needs_an_id(tmp_path: Path) -> None:
    write(tmp_path, {"queries.jsonl": '{"text": "one"}\n', "qrels/test.tsv": QRELS})
    with pytest.raises(InvalidLine, match=r"queries.jsonl, line 1: has no `_id`"):
        list(read_dataset(dataset_lines(tmp_path)))


@needs("math")
@pytest.mark.parametrize(
    ("path", "items"),
    [
        ("math/test-dev.jsonl", 1000),
        ("gsm8k/test-dev.jsonl", 659),
        ("zh/cmath-test.jsonl", 1098),
        ("zh/mgsm-zh.jsonl", 250),
        ("cranfield", 112),
    ],
)
def test_reads_real_datasets(path: str, items: int) -> None:
    items_read = list(read_dataset(dataset_lines(DATA / path)))
    assert len(items_read) == items
    assert all(item.gold is not None or item.gold_documents for item in items_read)


@needs("math")
def test_boxes_of_solutions_agree_with_answers() -> None:
    with (DATA / "math" / "train.jsonl").open() as file:
        fields = [json.loads(line) for line in file]
    golds = [dataset_item(problem="p", solution=each["solution"]).gold for each in fields]
    differing = [gold for gold, each in zip(golds, fields, strict=True) if gold != each["answer"]]
    assert len(differing) < len(golds) / 100


def test_an_item_names_the_relation_that_it_asks_for() -> None:
    asked = {"relation": "met", "entity": "a", "side": "subject", "leads": [{"rule": 3, "documents": ["7"]}]}
    query = FactQuery(relation="met", entity="a", side="subject", leads=(Lead(rule=3, documents=("7",)),))
    assert dataset_item(question="q", relation="met").query == FactQuery(relation="met")
    assert dataset_item(question="q", query=asked) == dataset_item(question="q", query=asked, relation="met")
    assert dataset_item(question="q", query=asked).query == query
    assert (dataset_item(query="q", relation="met").question, dataset_item(query="q").query) == ("q", None)


def test_a_line_without_a_relation_is_hashed_as_ever() -> None:
    plain = canonical.digest(dataset_item(question="q", answer="4"))
    assert canonical.digest(dataset_item(question="q", answer="4", relation=None)) == plain
    assert canonical.digest(dataset_item(question="q", answer="4", relation=" ")) == plain


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"relation": 4}, "`relation` is a number"),
        ({"query": {"entity": "a"}}, "`query`: Object missing required field `relation`"),
        ({"query": {"relation": "met", "side": "both"}}, "`query`: Invalid enum value"),
        ({"query": {"relation": ""}}, "`query.relation` is empty"),
        (
            {"query": {"relation": "met"}, "relation": "saw"},
            "`relation` is 'saw', but `query.relation` is 'met'; keep one",
        ),
    ],
)
def test_a_relation_that_cannot_be_used_is_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidLine) as refused:
        dataset_item(question="q", **fields)
    assert said in str(refused.value)


# What is said of an upload as a whole


def warnings_of(content: str | bytes, grader: str | None = None) -> list[str]:
    items = ItemReader(grader)
    found = rows.read(io.BytesIO(content.encode() if isinstance(content, str) else content), "upload")
    assert len(list(Reader(found, lambda line, _: items.read(line), question_id))) > 0
    return items.list_warnings()


def lines_of(*objects: dict[str, Any]) -> str:
    return "".join(json.dumps(each) + "\n" for each in objects)


UNGRADED = "no item has an expected answer (`answer`) or relevant documents (`gold_documents`), so no answer to them"
QUESTION = {"question": "What is 2 + 2?"}
MANY = {f"x{number}": number for number in range(12)}


@pytest.mark.parametrize(
    ("content", "unread"),
    [
        (lines_of({**QUESTION, "anwser": "4"}), "`anwser` (did you mean `answer`?)"),
        (lines_of({**QUESTION, "expectd": "4", "n": 1}), "`expectd` (did you mean `expected`?), `n`"),
        (lines_of({**QUESTION, "relevant_docs": ["a"]}), "`relevant_docs`"),
        (lines_of({**QUESTION, "answer": None}, QUESTION), None),
        (lines_of({**QUESTION, "Anser": "4"}), "`Anser` (did you mean `answer`?)"),
        ("question,anwser\n1+1?,2\n", "`anwser` (did you mean `answer`?)"),
        ("question,anwser,n\n1+1?,2,1\n2+2?,4,2\n", "`anwser` (did you mean `answer`?), `n`"),
        (lines_of({**QUESTION, "gold_answer": "N/A", "gold_ids": []}), None),
        (lines_of({**QUESTION, **MANY, "zanswer": 4}), "`zanswer` (did you mean `answer`?), `x0`, `x1`, `x10`"),
        (lines_of({**QUESTION, "x" * 100_000: 1}), f"`{'x' * 40}`"),
    ],
    ids=["misspelt", "another", "documents", "null", "capital", "CSV", "wider CSV", "BRIGHT without", "many", "long"],
)  # fmt: skip
def test_items_without_any_expected_answer_or_document_are_told(content: str, unread: str | None) -> None:
    (warning,) = warnings_of(content)
    assert warning.startswith(UNGRADED)
    assert (f"; fields that were not read: {unread}" in warning) if unread else ("not read" not in warning)
    assert len(warning) < 600


@pytest.mark.parametrize(
    "content",
    [
        lines_of({**QUESTION, "answer": "4", "source": "x", "question_id": 7, "answer_type": "int"}),
        lines_of({**QUESTION, "gold_documents": ["a"], "subset": "x", "context": "y", "category": "z"}),
        lines_of(
            {"query": "What?", "gold_ids": ["a/1"], "gold_answer": "4", "excluded_ids": ["N/A"], "reasoning": "r"}
        ),
        lines_of({**QUESTION, "answer": "4", "reference_contexts": ["Two and two are four."]}),
        "question,answer,domain,difficulty,lang,split\n1+1?,2,,,,\n",
    ],
)
def test_fields_that_are_something_else_are_not_taken_for_misspelt_ones(content: str) -> None:
    assert warnings_of(content) == []


@pytest.mark.parametrize(
    ("misspelt", "meant"),
    [("anwser", "answer"), ("answers", "answer"), ("gold_document", "gold_documents"), ("qustion", "question"),
     ("subjekt", "subject"), ("golden_answer", "golden_answers"), ("LEVL", "level")],
)  # fmt: skip
def test_a_field_that_looks_misspelt_is_told_although_other_items_are_graded(misspelt: str, meant: str) -> None:
    warnings = warnings_of(lines_of({**QUESTION, "answer": "4"}, {**QUESTION, misspelt: "5", "gold": "5"}))
    assert warnings == [f"`{misspelt}` was not read: did you mean `{meant}`?"]


def test_a_field_is_read_for_some_graders_only() -> None:
    assert warnings_of(lines_of({**QUESTION, "rubric": "Short."}), "rubric") == []
    assert "`rubric`" in warnings_of(lines_of({**QUESTION, "rubric": "Short."}))[0]
    assert warnings_of(lines_of({**QUESTION, "choices": ["4", "5"], "answer": "A"}), "choice") == []


def test_reads_bright() -> None:
    line = {"query": "Why?", "id": "7", "gold_ids": ["a/1", "a/2"], "gold_answer": "42", "excluded_ids": ["b/1"]}
    item = dataset_item(**line)
    assert (item.question, item.gold, item.gold_documents) == ("Why?", "42", {"a/1": 1, "a/2": 1})
    assert dataset_item(**{**line, "gold_answer": "N/A"}).gold is None
    assert warnings_of(lines_of(line, {**line, "id": "8", "excluded_ids": ["N/A"]})) == [
        "`excluded_ids` of 1 items was not read: a search finds these documents like all others"
    ]


# Numbers that JSON has not


@pytest.mark.parametrize(
    "number", ["NaN", "-Infinity", "1e999", "[1, NaN]", '{"a": [NaN]}', "9" * 5000, "-" + "9" * 5000]
)
def test_a_number_that_json_has_not_harms_nobody_where_it_is_not_read(number: str) -> None:
    item = read_dataset_line(f'{{"question": "2 + 2?", "answer": "4", "score": {number}}}', "items.jsonl", 1)
    assert (item.question, item.gold) == ("2 + 2?", "4")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            '{"question": "a", "answer": NaN}',
            "`answer` is NaN, which JSON does not allow; write it as a string or a number",
        ),
        ('{"question": NaN}', "`question` is NaN, which JSON does not allow; write it as a string"),
        (
            '{"question": "a", "golden_answers": ["x", NaN]}',
            "`golden_answers` is an array with NaN, which JSON does not allow;",
        ),
        (
            '{"question": "a", "gold_documents": {"d": NaN}}',
            "`gold_documents` is an object with NaN, which JSON does not allow",
        ),
        ('{"question": "a", "level": 1e999}', "`level` is 1e999, which is out of range; write it"),
        ('{"question": "a", "id": -Infinity}', "`id` is -Infinity, which JSON does not allow; write it"),
        (
            f'{{"question": "a", "answer": {"9" * 5000}}}',
            "`answer` is a number of 5000 digits, which is too long; write it",
        ),
    ],
)
def test_such_a_number_is_refused_by_name_where_it_is_read(line: str, said: str) -> None:
    with pytest.raises(InvalidLine) as refused:
        read_dataset_line(line, "items.jsonl", 1)
    assert refused.value.said.startswith(said)
    assert "sys." not in refused.value.said


def test_a_number_of_many_digits_is_read_as_it_is_written() -> None:
    item = read_dataset_line(f'{{"question": "a", "answer": {"9" * 4300}}}', "items.jsonl", 1)
    assert item.gold == "9" * 4300
