"""Grading mathematics: the table of hard pairs, and real answers."""

import csv
import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from shared.mathtext import equations, mathematics
from shared.mathtext.answers import LONGEST, extract, normal_form
from shared.mathtext.equivalence import compare, family, shape
from shared.mathtext.mathematics import grade
from shared.mathtext.values import library_verdict
from shared.settings import REPOSITORY
from tests.unit.cases import named
from tests.unit.grading.pairs import cases, differences, on_page, pairs

DATA = Path(os.environ.get("MATHRAG_SHARED", REPOSITORY.parent / "shared")) / "data"
"""Beside the repository, where there are datasets to try."""


def test_the_hard_pairs_are_graded_as_a_mathematician_would() -> None:
    wrong = {
        f"{case.kind}: {case.answer} for {case.gold}": case.why
        for case in cases()
        if named(compare, case.answer, case.gold) is not case.right
    }
    assert wrong == {}


def test_the_table_is_large_and_repeats_nothing() -> None:
    given = [frozenset((pair.answer, pair.gold)) for pair in pairs() if pair.expected in ("equal", "different")]
    assert len(given) == len(set(given))
    assert len(pairs()) > 231


@pytest.mark.slow
def test_the_page_explains_each_difference_from_the_library() -> None:
    assert on_page() == differences()


def test_whatever_is_identical_is_right() -> None:
    for text in (r"\dfrac{5^{5^{5^{5^5}}}}{16}", r"\frac{", "((((", r"\ud800", "x" * 10_000):
        assert compare(text, text) is True


@pytest.mark.slow
def test_an_answer_of_any_length_is_graded() -> None:
    assert normal_form("5," * LONGEST) == "5," * LONGEST
    assert compare("(" * 2000, "5") is False


HOSTILE = [
    "亿", "万", "1万", "一", "三元", "半", "一又", "一分之", "约", "答：", "1小时", "5‰", "5%", "²⁄", "1 hour ",
    "minus ", "one hundred and ", "half of a ", "5 million ", "5 squared ", "7 tenths of ", r"2\text{ million ",
    "all positive ", "for all ", ",k", r"k\in", "exp(", "sqrt(", r"\{x|", "|", r"[1,2]\cup", "(1,2)U",
    r"\mathbb{R}\setminus\{1\}", "A(1,2)", "[[1,2],", "[[", "m+n=1=", r"\approx 5", "answer: ", "5", "0.1", "1/",
    "1.5e3",
]  # fmt: skip


@pytest.mark.parametrize("piece", HOSTILE)
def test_no_repetition_in_an_answer_takes_long_to_read(piece: str) -> None:
    many = piece * (LONGEST // len(piece))
    for text in (many, f"{many[: LONGEST - 1]}5", f"5{many[: LONGEST - 1]}"):
        assert family(normal_form(text)) or shape(normal_form(text))


PIECES = [
    r"\frac", r"\sqrt", "{", "}", "(", ")", "[", "]", r"\{", r"\}", "1", "2", "x", ",", "=", "<", r"\le", r"\pm", "^",
    "_", r"\circ", "%", r"\$", " ", ".", r"\text{", "cm", "and", r"\cup", r"\infty", r"\begin{pmatrix}", "&", r"\\",
    r"\end{pmatrix}", "-", "/", ":", "三", "√", "½", r"\overline{", "e", "|",
]  # fmt: skip


def test_nothing_that_looks_like_an_answer_raises() -> None:
    draw = random.Random(0)  # noqa: S311 - the same texts every time
    for _ in range(2000):
        one, other = ("".join(draw.choices(PIECES, k=draw.randint(1, 9))) for _ in range(2))
        normal_form(one)
        assert grade(one, one).math_verify is True
        compare(one, other)


@pytest.mark.parametrize("first", [mathematics, equations])
def test_every_module_that_decides_a_verdict_is_part_of_the_version(first: ModuleType) -> None:
    found, left = set(), [first.__name__.rpartition(".")[2]]
    while left:
        module = left.pop()
        source = (REPOSITORY / "shared" / "mathtext" / f"{module}.py").read_text("utf-8")
        found.add(module)
        for line in (each.split() for each in source.splitlines() if each.strip().startswith("from shared.mathtext")):
            names = [line[3]] if line[1] == "shared.mathtext" else [line[1].rpartition(".")[2]]
            left += [name for name in names if name not in found]
    assert found == set(first.SOURCES)


def gold_answers() -> Iterator[tuple[str, str]]:
    fields = {"math": "answer", "gsm8k": "answer", "zh": "answer"}
    for name, field in fields.items():
        for file in sorted((DATA / name).glob("*.jsonl")):
            for line in file.read_text("utf-8").splitlines():
                row = json.loads(line)
                yield f"{name}/{file.name}", str(row.get(field, row.get("golden"))).rpartition("####")[2].strip()


@pytest.mark.skipif(not DATA.is_dir(), reason="no datasets beside the repository")
def test_every_gold_answer_equals_itself_in_another_spelling() -> None:
    respelled = (
        lambda text: f"${text}$.",
        lambda text: text.replace(r"\frac", r"\dfrac").replace(r"\left", "").replace(r"\right", ""),
        lambda text: text.replace("(", r"\left( ").replace(")", r" \right)") if r"\left" not in text else text,
        lambda text: text.replace(r"\!", "").replace(r"\text{", r"\mbox{"),
    )
    wrong = {
        (name, gold, spell(gold))
        for name, gold in set(gold_answers())
        for spell in respelled
        if compare(gold, gold) is not True or (gold and compare(spell(gold), gold) is not True)
    }
    assert wrong == set()


PAPER = DATA / "paper-runs"


@pytest.mark.skipif(not PAPER.is_dir(), reason="no published answers beside the repository")
def test_published_answers_are_graded_as_docs_grading_says() -> None:
    train = {row["unique_id"]: row["answer"] for row in _lines(DATA / "math" / "train.jsonl")}
    golds = {row["item"]: train[row["unique_id"]] for row in _lines(PAPER / "items.jsonl")}
    answers = {row["response"]: extract(row["text"])[0] for row in _lines(PAPER / "responses.jsonl")}
    counted: dict[tuple[bool, bool, str, str], int] = {}
    with (PAPER / "runs.csv").open(encoding="utf-8", newline="") as file:
        for run in csv.DictReader(file):
            answer, gold = answers[int(run["response"])], golds[int(run["item"])]
            case = run["published_correct"] == "1", answer is not None and compare(answer, gold) is True, answer, gold
            counted[case] = counted.get(case, 0) + 1
    assert {case: count for case, count in counted.items() if case[0] != case[1]} == {
        (False, True, "22500", "22,500"): 200,
        (False, True, "-12x - 3", "-12x -3"): 200,
        (False, True, "5040", r"5,\!040"): 200,
        (False, True, "A,B,E", r"\text{A,B,E}"): 200,
        (True, False, r"\frac{7}{2}", r"\frac{7}{6}"): 43,
    }
    assert sum(counted.values()) == 20_000
    assert library_verdict("A,B,E", r"\text{A,B,E}") is False


def _lines(file: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]
