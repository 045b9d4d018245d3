"""Measures of ranked lists: golden values, and the definitions by a second hand."""

import math
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import Invalid
from shared.rag import metrics
from shared.rag.metrics import measure_per_query

NAMES = ("nDCG@5", "nDCG@3", "Recall@5", "Precision@5", "F1@5", "MAP", "MAP@5", "MRR", "MRR@5")
DOCUMENTS = [f"d{n}" for n in range(8)]
GRADES = st.dictionaries(st.sampled_from(DOCUMENTS), st.integers(1, 4), min_size=1)
RANKED = st.permutations(DOCUMENTS).flatmap(lambda each: st.integers(0, 8).map(lambda n: each[:n]))


def one(grades: Mapping[str, int], ranked: Sequence[str], *names: str) -> dict[str, float]:
    return measure_per_query({"q": grades}, {"q": ranked}, names)["q"]


def by_hand(grades: Mapping[str, int], ranked: Sequence[str]) -> dict[str, float]:
    hits = [place for place, document in enumerate(ranked, start=1) if document in grades]
    precision, recall = (sum(place <= 5 for place in hits) / n for n in (5, len(grades)))

    def ndcg(k: int) -> float:
        gains = [grades.get(document, 0) for document in ranked[:k]]
        ideal = sorted(grades.values(), reverse=True)[:k]
        found, best = (sum(gain / math.log2(place + 2) for place, gain in enumerate(of)) for of in (gains, ideal))
        return found / best

    def average(k: int) -> float:
        return sum((at + 1) / place for at, place in enumerate(hits) if place <= k) / len(grades)

    first = hits[0] if hits else None
    values = (
        ndcg(5), ndcg(3), recall, precision,
        2 * precision * recall / (precision + recall) if hits and hits[0] <= 5 else 0.0,
        average(8), average(5), 1 / first if first else 0.0, 1 / first if first and first <= 5 else 0.0,
    )  # fmt: skip
    return dict(zip(NAMES, values, strict=True))


def test_golden_values_of_trec_eval() -> None:
    found = one({"d1": 1, "d4": 2}, ["d1", "d2", "d3"], "nDCG@5", "Recall@5", "Precision@5", "MRR", "MAP@5", "F1@5")
    assert found["nDCG@5"] == pytest.approx(0.380094, abs=5e-7)
    assert (found["Recall@5"], found["Precision@5"], found["MRR"], found["MAP@5"]) == (0.5, 0.2, 1.0, 0.5)
    assert found["F1@5"] == pytest.approx(2 * 0.5 * 0.2 / 0.7)


@given(GRADES, RANKED)
def test_measures_are_what_their_definitions_say(grades: dict[str, int], ranked: list[str]) -> None:
    assert one(grades, ranked, *NAMES) == pytest.approx(by_hand(grades, ranked))


def test_a_query_that_was_not_answered_counts_0() -> None:
    found = measure_per_query({"a": {"d": 1}, "b": {"d": 1}}, {"a": []}, ["nDCG@10", "F1@10", "MRR@10"])
    assert found == {query: {"nDCG@10": 0, "F1@10": 0, "MRR@10": 0} for query in ("a", "b")}


def test_the_order_of_a_list_counts_not_the_names_in_it() -> None:
    for ranked in (["a", "z"], ["z", "a"]):
        assert one({ranked[0]: 1}, ranked, "MRR")["MRR"] == 1


def test_a_query_that_nobody_judged_is_in_no_figure() -> None:
    assert list(measure_per_query({"a": {"d": 1}}, {"a": ["d"], "b": ["d"]}, ["MAP"])) == ["a"]


@pytest.mark.parametrize(("name", "depth"), [("nDCG@10", 10), ("MAP", None), ("MAP@100", 100), ("F1@3", 3)])
def test_a_name_says_how_deep_it_looks(name: str, depth: int | None) -> None:
    assert metrics.get_cutoff(name) == depth


@pytest.mark.parametrize("name", ["ndcg@10", "nDCG", "Recall@0", "Recall", "Bleu@4", "MAP@", "nDCG@10 "])
def test_an_unknown_measure_is_refused_in_words(name: str) -> None:
    with pytest.raises(Invalid, match="no measure") as refused:
        metrics.get_cutoff(name)
    assert "nDCG@10" in str(refused.value.hint)
