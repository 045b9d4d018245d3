import contextlib
import json
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.retriever.index import Bm25
from shared import canonical
from shared.errors import Invalid, InvalidLine, NotFound
from shared.ingest.datasets import draw_stratified, read_corpus, read_corpus_line, read_dataset_line
from shared.ingest.lines import MAX_LINE_BYTES, Content, EmptyText
from shared.ingest.paths import corpus_lines
from shared.rag.prompts import detect_language, localised
from shared.replies import CorpusRecord
from shared.settings import REPOSITORY
from tests.unit.cases import named
from tools.bench.comparison import last_clause, passages, questions
from tools.bench.stack import as_lines

# Chinese problems: what a question is made of, and that BM25 finds them in the real collection.


CMATH = REPOSITORY.parent / "shared" / "data" / "zh" / "cmath-test.jsonl"
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
    assert localised("cot", spoken[0]) == "cot-zh"


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
    record = corpus_record(problem="1+1?", solution="It is 2.", answer="2", subject="Algebra", level=2, unique_id="test/1.json")
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


@pytest.mark.parametrize("name", ["text", "contents"])
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
        (b'{"text": NaN}', "`text` is NaN, which is no JSON number; write it as a string"),
        (b'{"text": "x", "meta": {"a": 1e999}}', "`meta` is an object with 1e999, which is out of range, not a JSON"),
        (b"[" * 5_000, "nested too deeply"),
        (b'["text"]', "holds an array; write one object"),
        (b"12", "holds a number"),
        (b"null", "holds null"),
        (b"", "is empty; remove the line"),
        (b'{"text": "caf\xe9"}', "is not UTF-8 (byte 13); save the file as UTF-8"),
        ('{"text": "x"}'.encode("utf-16"), "NUL byte"),
        (b'{"text": "a\x00"}', "NUL byte"),
        (rb'{"text": "a\u0000b"}', r"holds the character \u0000; remove it"),
        (rb'{"text": "x", "meta": {"\u0000": 1}}', r"holds the character \u0000"),
        (rb'{"text": "a\ud800b"}', "lone surrogate"),
        (rb'{"text": "x", "meta": [["\udfff"]]}', "lone surrogate"),
        ('{"text": "\ud800"}', "lone surrogate"),
        (b"version https://git-lfs.github.com/spec/v1", "Git LFS pointer, not the data; run `git lfs pull`"),
        (b'{"text": "x"}\r{"text": "y"}', "holds a lone carriage return; end lines with"),
        (b'{"text": "x", "contents": "y"}', "has both `text` and `contents` with different values; keep one"),
        (b'{"text": "x", "problem": "y", "question": "z"}', "has both `problem` and `question`"),
        (b'{"id": "1"}', "has no text; write it into `text`"),
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


@pytest.mark.parametrize("name", ["c.dat", "c.json", "other/x.pdf"])
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
    with pytest.raises(ValueError, match="101 of 100"):
        draw_stratified(LABELS, 101, seed=1)
