"""Which questions a corpus answers already: the same as looking at every pair."""

import os
from itertools import product
from pathlib import Path
from string import ascii_lowercase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mathrag.cli.corpus import print_leaks
from services.orchestrator.api.examples import make_example
from shared.ingest.datasets import read_corpus, read_dataset
from shared.ingest.paths import corpus_lines, dataset_lines
from shared.rag.duplicates import QuestionDuplicate, QuestionIndex, has_answer, is_near_duplicate, is_same_text
from shared.settings import REPOSITORY

MATH = Path(os.environ.get("MATHRAG_SHARED", REPOSITORY.parent / "shared")) / "data" / "math"
TEN = "one two three four five six seven eight nine ten"
TEXTS = st.lists(st.sampled_from(["ab", "cd", "ef", "7"]), max_size=14).map(" ".join)


@given(questions=st.lists(TEXTS, max_size=8), problem=TEXTS)
def test_the_twins_are_those_that_a_look_at_every_pair_finds(questions: list[str], problem: str) -> None:
    found = QuestionIndex(questions).twins(problem)
    assert [twin.question for twin in found] == [
        place for place, question in enumerate(questions) if is_near_duplicate(question, problem)
    ]
    assert [twin.exact for twin in found] == [is_same_text(questions[twin.question], problem) for twin in found]


@given(words=st.integers(3, 60), changed=st.integers(0, 60))
def test_the_threshold_belongs_to_it_whatever_the_length(words: int, changed: int) -> None:
    names = ["".join(pair) for pair in product(ascii_lowercase, repeat=2)]
    question, problem = " ".join(names[:words]), " ".join(names[: max(words - changed, 0)])
    assert bool(QuestionIndex([question]).twins(problem)) == is_near_duplicate(question, problem)


def test_case_and_outer_blanks_are_the_same_text_and_another_word_is_near() -> None:
    questions = QuestionIndex([TEN, f"{TEN} here", "What is music?"])
    assert questions.twins(f" {TEN.upper()}\r\n") == [
        QuestionDuplicate(0, exact=True),
        QuestionDuplicate(1, exact=False),
    ]
    assert questions.twins("what IS music?") == [QuestionDuplicate(2, exact=True)]
    assert questions.twins("something else altogether") == []


def test_a_question_in_another_spelling_or_in_a_prompt_is_the_same_text() -> None:
    questions = QuestionIndex([r"What is $\dfrac12$ of $\triangle ABC$?"])
    asked = "Problem: What is ½ of △A B C?\nPlease reason step by step, and put your final answer within \\boxed{}."
    assert questions.twins(asked) == [QuestionDuplicate(0, exact=True)]


@pytest.mark.parametrize("problem", ["", "  \n"])
def test_a_passage_without_a_problem_is_nobodys_twin(problem: str) -> None:
    assert QuestionIndex(["", TEN]).twins(problem) == []


def test_questions_that_are_asked_twice_are_both_found() -> None:
    assert [twin.question for twin in QuestionIndex([TEN, "x", TEN]).twins(TEN)] == [0, 2]


@pytest.mark.skipif(not MATH.is_dir(), reason="MATH is not there: see docs/reference/reproduction.md")
def test_one_of_a_thousand_questions_of_math_stands_in_its_training_part() -> None:
    documents = [record.document for record in read_corpus(corpus_lines(MATH / "train.jsonl"))]
    items = list(read_dataset(dataset_lines(MATH / "test-dev.jsonl")))
    questions = QuestionIndex([item.question for item in items])
    pairs = [(twin, each.text) for each in documents for twin in questions.twins(each.problem)]
    assert (len(pairs), len({twin.question for twin, _ in pairs})) == (9, 3)
    same = [twin.exact for twin, text in pairs if has_answer(text, items[twin.question].gold or "")]
    assert same == [True]
    assert sum(twin.exact for twin, _ in pairs) == 1


def test_a_person_reads_how_many_and_sees_the_first(capsys: pytest.CaptureFixture[str]) -> None:
    print_leaks(make_example("Leaks", passages=4))
    said = capsys.readouterr().out
    assert "math-500 in math: 3 of 500 questions (0.6 %) have their problem in 7500 documents" in said
    assert "1 verbatim, 2 near-duplicates; 4 pairs, 2 with the same answer" in said
    assert "4 documents are passages without a problem" in said
    assert said.splitlines()[-1].split()[:3] == ["17", "same", "train/algebra/12"]
