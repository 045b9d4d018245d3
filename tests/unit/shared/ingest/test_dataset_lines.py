"""Dataset lines: questions, gold answers and gold documents of every known shape."""

import io
import json
import os
from pathlib import Path
from typing import Any

import pytest

from shared import canonical
from shared.calls import MAX_QUESTION
from shared.errors import Invalid, InvalidLine
from shared.ingest import rows
from shared.ingest.datasets import ItemReader, question_id, read_dataset, read_dataset_line
from shared.ingest.lines import EmptyText, Reader
from shared.ingest.paths import dataset_lines
from shared.samples import DatasetItem, FactQuery, Lead
from shared.settings import REPOSITORY
from tests.unit.cases import named

DATA = Path(os.environ.get("MATHRAG_SHARED", REPOSITORY.parent / "shared")) / "data"


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


def test_question_has_five_names() -> None:
    assert {
        name: found
        for name in ["question", "problem", "query", "user_input", "text"]
        if (found := named(dataset_item, **{name: " why? "}).question) != "why?"
    } == {}


def test_gold_has_five_names() -> None:
    assert {
        name: found
        for name in ["answer", "gold", "expected_answer", "gt", "golden"]
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
    wrong = [(fields, found) for fields, gold in cases if (found := named(dataset_item, question="q", **fields).gold) != gold]
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
        ({"answer": "4"}, "has no question; write it into `question`"),
        ({"question": 4}, "`question` is a number"),
        ({"question": "q", "answer": {"a": "4"}}, "`answer` is an object; write it as a string or a number"),
        ({"question": "q", "answer": ["4", None]}, "`answer` is null; write it as a string or a number"),
        ({"question": "q", "problem": "p"}, "has both `question` and `problem` with different values"),
        ({"question": "q", "answer": "4", "gold": "5"}, "has both `answer` and `gold` with different values"),
        ({"messages": [{"role": "user", "content": "a"}] * 2}, "`messages` does not hold exactly one question"),
        ({"messages": [{"role": "user"}]}, "`messages` does not hold exactly one question"),
        ({"messages": "hi"}, "has no question"),
        ({"user_input": [{"content": "hi"}]}, "`user_input` is an array; write it as a string"),
        ({"question": "q", "answer": "4", "contexts": ["c"]}, "may be a system's answer or the expected one"),
        ({"question": "q", "answer": " "}, "`answer` is empty"),
        ({"question": "q", "answer": True}, "`answer` is a boolean"),
        ({"question": "q", "solution": 4}, "`solution` is a number"),
        ({"question": "q", "gold_documents": [None]}, "`gold_documents` is null"),
        ({"question": "q", "gold_documents": [["a", {}]]}, "`gold_documents` is an object"),
        ({"question": "q", "gold_documents": True}, "`gold_documents` is a boolean"),
        ({"question": "q", "gold_documents": {"a": "1"}}, "`gold_documents` must be a list of ids or an object"),
        ({"question": "q", "gold_documents": {"a": True}}, "`gold_documents` must be"),
    ]
    wrong = {str(fields): said for fields, expected in cases if expected not in (said := named(dataset_refusal, fields))}
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


def test_an_item_without_alternatives_is_hashed_as_before() -> None:
    encoded = canonical.encode(dataset_item(question="q", answer="4", choices=["4", "5"], rubric="r"))
    assert b"alternatives" not in encoded
    assert b"expected" not in encoded


def test_a_chat_of_one_question_is_a_question() -> None:
    chat = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "why?"},
        {"role": "assistant"},
    ]
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
    assert caught.value.hint == "it has the splits dev, train"


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


needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="the data folder is not here (set MATHRAG_SHARED)")


@needs_data
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
    dataset_item = list(read_dataset(dataset_lines(DATA / path)))
    assert len(dataset_item) == items
    assert all(item.gold is not None or item.gold_documents for item in dataset_item)


@needs_data
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
        ({"query": {"relation": "met"}, "relation": "saw"}, "`relation` is 'saw', and `query.relation` 'met'"),
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
        (lines_of({**QUESTION, "expected": "4", "n": 1}), "`expected` (did you mean `expected_answer`?), `n`"),
        (lines_of({**QUESTION, "relevant_docs": ["a"]}), "`relevant_docs`"),
        (lines_of({**QUESTION, "answer": None}, QUESTION), None),
        (lines_of({**QUESTION, "Answer": "4"}), "`Answer` (did you mean `answer`?)"),
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
        lines_of({**QUESTION, "answer": "4"}, {**QUESTION, "source": "x", "question_id": 7, "answer_type": "int"}),
        lines_of({**QUESTION, "gold_documents": ["a"], "subset": "x", "context": "y", "category": "z"}),
        lines_of(
            {"query": "What?", "gold_ids": ["a/1"], "gold_answer": "So.", "excluded_ids": ["N/A"], "reasoning": "r"}
        ),
        lines_of({**QUESTION, "answer": "4", "reference_contexts": ["Two and two are four."]}),
        "question,answer,domain,difficulty,lang,split\n1+1?,2,,,,\n",
    ],
)
def test_fields_that_are_something_else_are_not_taken_for_misspelt_ones(content: str) -> None:
    assert warnings_of(content) == []


@pytest.mark.parametrize(
    ("misspelt", "meant"),
    [("anwser", "answer"), ("answers", "answer"), ("Question", "question"), ("gold_document", "gold_documents"),
     ("qustion", "question"), ("subjekt", "subject"), ("golden_answer", "golden_answers"), ("LEVEL", "level")],
)  # fmt: skip
def test_a_field_that_looks_misspelt_is_told_although_other_items_are_graded(misspelt: str, meant: str) -> None:
    warnings = warnings_of(lines_of({**QUESTION, "answer": "4"}, {**QUESTION, misspelt: "5"}))
    assert warnings == [f"`{misspelt}` was not read: did you mean `{meant}`?"]


def test_a_field_is_read_for_some_graders_only() -> None:
    assert warnings_of(lines_of({**QUESTION, "rubric": "Short."}), "rubric") == []
    assert "`rubric`" in warnings_of(lines_of({**QUESTION, "rubric": "Short."}))[0]
    assert warnings_of(lines_of({**QUESTION, "choices": ["4", "5"], "answer": "A"}), "choice") == []


def test_reads_bright() -> None:
    line = {"query": "Why?", "id": "7", "gold_ids": ["a/1", "a/2"], "gold_answer": "So.", "excluded_ids": ["b/1"]}
    item = dataset_item(**line)
    assert (item.question, item.gold, item.gold_documents) == ("Why?", "So.", {"a/1": 1, "a/2": 1})
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
            "`answer` is NaN, which is no JSON number; write it as a string or a number",
        ),
        ('{"question": NaN}', "`question` is NaN, which is no JSON number; write it as a string"),
        (
            '{"question": "a", "golden_answers": ["x", NaN]}',
            "`golden_answers` is an array with NaN, which is no JSON number;",
        ),
        ('{"question": "a", "gold_documents": {"d": NaN}}', "`gold_documents` is an object with NaN, which is no JSON"),
        ('{"question": "a", "level": 1e999}', "`level` is 1e999, which is out of range; write it"),
        ('{"question": "a", "id": -Infinity}', "`id` is -Infinity, which is no JSON number; write it"),
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
