"""Chinese problems: what a question is made of, and that BM25 finds them in the real collection."""

import json
from typing import Any

import pytest

from services.retriever.index import Bm25
from shared.ingest.datasets import read_corpus_line
from shared.rag.prompts import detect_language, localised
from shared.settings import REPOSITORY
from tools.bench.comparison import last_clause, passages, questions
from tools.bench.stack import as_lines

DATA = REPOSITORY.parent / "shared" / "data" / "zh" / "cmath-test.jsonl"
TEA = {"question": "妈咪买了3盒茶叶，一盒茶叶有6小包，一共买了多少小包茶叶？", "golden": "18"}
HARES = {"question": "黑兔有5只，白兔有8只。黑兔比白兔少多少只", "golden": "3"}


@pytest.fixture(scope="module")
def problems() -> list[dict[str, Any]]:
    if not DATA.exists():
        pytest.skip(f"{DATA.name} is not part of the repository, and is absent here")
    return [json.loads(line) for line in DATA.read_text("utf-8").splitlines()]


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
