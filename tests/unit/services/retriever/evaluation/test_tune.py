"""Weights of fusion: chosen on some queries, measured on others."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from services.retriever import evaluation
from services.retriever.evaluation import (
    CONSTANTS,
    SHARES,
    Collection,
    CollectionSearcher,
    Tune,
    estimate_interval,
    find_plateau,
    make_curve,
    split_queries,
)
from services.retriever.index import Bm25, Faiss
from shared.errors import Invalid
from tests.unit import beir
from tests.unit.retrieval import HashedWords

JUDGED = {f"q{n}": {"circle": 1} for n in range(6)}
QUERIES = {f"q{n}": f"circle number {n}" for n in range(10)}


def asked(folder: Path, **fields: object) -> Tune:
    return Tune(folder=str(folder), **fields)  # type: ignore[arg-type]


def tuned(folder: Path, **fields: object) -> dict[str, object]:
    collection = Collection(folder)
    searcher = CollectionSearcher([Faiss(HashedWords()), Bm25()], folder.parent, collection, 100)
    return evaluation.tune(asked(folder, **fields), collection, searcher)


def curve(best: float, spread: float = 0.1, queries: int = 40) -> NDArray[np.float64]:
    noise = np.random.default_rng(0).normal(0, spread, queries)
    slope = np.random.default_rng(1).normal(1, 0.2, queries)
    return np.array([0.5 + noise - slope * abs(share - best) for share in SHARES])


class TestSplitting:
    def test_a_development_split_is_used(self, tmp_path: Path) -> None:
        made = beir.write(
            tmp_path / "c", queries=QUERIES, test=JUDGED, dev={f"q{n}": {"ring": 1} for n in range(4, 10)}
        )
        found = split_queries(asked(made), Collection(made))
        assert set(found.development.judged) == {"q6", "q7", "q8", "q9"}
        assert set(found.held_out.judged) == set(JUDGED)
        assert found.how == "dev.tsv"

    def test_without_one_the_queries_are_halved_by_the_seed(self, tmp_path: Path) -> None:
        made = beir.write(tmp_path / "c", queries=QUERIES, test=JUDGED)
        found, again, other = (split_queries(asked(made, seed=seed), Collection(made)) for seed in (0, 0, 3))
        one, two = set(found.development.judged), set(found.held_out.judged)
        assert (len(one), one & two, one | two) == (3, set(), set(JUDGED))
        assert set(found.development.texts) == one
        assert again == found
        assert set(other.development.judged) != one

    def test_too_few_queries_are_refused(self, tmp_path: Path) -> None:
        made = beir.write(tmp_path / "c", queries=QUERIES, test={"q0": {"ring": 1}, "q1": {"ring": 1}})
        with pytest.raises(Invalid, match="too few queries"):
            split_queries(asked(made), Collection(made))
        with pytest.raises(Invalid, match="no judgements for the split 'train'"):
            split_queries(asked(made, split="train"), Collection(made))


class TestChoosing:
    def test_the_plateau_is_what_is_not_separable_around_the_choice(self) -> None:
        values = curve(0.4)
        found = make_curve(SHARES, values)
        low, high = find_plateau(found, 0.4)
        assert low <= 0.4 <= high
        assert all(point.separable == (not low <= point.at <= high) for point in found)
        assert find_plateau(make_curve(SHARES, curve(0.4, spread=0)), 0.4) == [0.4, 0.4]

    def test_a_plateau_ends_where_the_first_share_is_worse(self) -> None:
        values = np.ones((len(SHARES), 10))
        values[5] -= np.linspace(0.1, 0.2, 10)
        assert find_plateau(make_curve(SHARES, values), 0.0) == [0.0, 0.2]

    def test_an_interval_holds_the_choices_of_other_queries(self) -> None:
        assert estimate_interval(SHARES, curve(0.4, spread=0), seed=0) == [0.4, 0.4]
        wishes = np.random.default_rng(0).uniform(0.2, 0.8, 12)
        values = np.array([1 - (share - wishes) ** 2 for share in SHARES])
        low, high = estimate_interval(SHARES, values, seed=0)
        assert low < SHARES[int(values.mean(axis=1).argmax())] < high
        assert estimate_interval(SHARES, values, seed=0) == [low, high]


class TestTuning:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        queries = beir.QUERIES | {f"{name}-again": f"{text}?" for name, text in beir.QUERIES.items()}
        judged = beir.JUDGED | {f"{name}-again": grades for name, grades in beir.JUDGED.items()}
        return beir.write(tmp_path / "c", queries=queries, test=judged)

    def test_the_choice_is_the_best_share_of_the_development_queries(self, folder: Path) -> None:
        found = tuned(folder)
        best = max(found["curve"], key=lambda point: point.value)  # type: ignore[call-overload]
        assert found["chosen"] == best.at
        assert f"--set fusion.dense={best.at} --set fusion.sparse={round(1 - best.at, 6)}" in str(found["set"])
        assert "--set fusion.method=weighted --set fusion.normaliser=min-max" in str(found["set"])

    def test_the_choice_is_measured_on_the_other_queries(self, folder: Path) -> None:
        held_out = tuned(folder)["held_out"]
        assert isinstance(held_out, dict)
        assert (held_out["queries"], 0 <= held_out["nDCG@10"] <= 1) == (5, True)
        assert [each["mode"] for each in held_out["against"]] == ["untuned", "dense", "sparse"]
        assert all(each["difference"].n == 5 for each in held_out["against"])

    def test_reciprocal_ranks_have_weights_too(self, folder: Path) -> None:
        assert str(tuned(folder, mode="hybrid")["set"]).startswith("--set fusion.method=rrf --set fusion.dense=")

    def test_the_constant_of_reciprocal_ranks_is_tuned(self, folder: Path) -> None:
        found = tuned(folder, mode="hybrid", over="rrf_k")
        assert found["chosen"] in CONSTANTS
        assert str(found["set"]).endswith(f"--set rrf_k={found['chosen']}")
        with pytest.raises(Invalid, match="no constant of reciprocal ranks"):
            tuned(folder, over="rrf_k")

    def test_one_list_has_no_weight(self, folder: Path) -> None:
        with pytest.raises(Invalid, match="mode `dense` has no weights to tune"):
            tuned(folder, mode="dense")

    def test_a_measure_beyond_the_lists_is_refused(self, folder: Path) -> None:
        with pytest.raises(Invalid, match="looks at more than 100"):
            tuned(folder, metric="nDCG@200")
