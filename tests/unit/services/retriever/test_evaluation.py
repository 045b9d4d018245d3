"""Judged collections, measured and tuned on."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from mathrag.errors import Invalid, InvalidLine, NotFound, Unavailable
from services.retriever import evaluation
from services.retriever.evaluation import (
    CONSTANTS,
    FOLDER,
    NAMES,
    SHARES,
    Collection,
    CollectionSearcher,
    Evaluate,
    Tune,
    choose_mode,
    estimate_interval,
    evaluate,
    find_plateau,
    make_curve,
    split_queries,
)
from services.retriever.index import Bm25, Faiss, IndexMatch
from shared import canonical
from shared.models.embedding import ModelFailed
from shared.params import EnhanceParams, FusionParams, Params
from shared.replies import Document, FailureKind
from tests.unit import beir
from tests.unit.retrieval import HashedWords

# Judged collections, measured: what is read, what is counted, and what the figures are made of.


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return beir.write(tmp_path / "small")


def searcher(folder: Path, k: int = 100) -> CollectionSearcher:
    return CollectionSearcher([Faiss(HashedWords()), Bm25()], folder.parent, Collection(folder), k)


def evaluated(folder: Path, mode: str = "sparse", k: int = 100, **fields: object) -> dict[str, object]:
    request = Evaluate(folder=str(folder), mode=mode, k=k, **fields)  # type: ignore[arg-type]
    return evaluate(request, Collection(folder), searcher(folder, k))


class TestCollection:
    def test_documents_of_the_same_text_are_two(self, tmp_path: Path) -> None:
        found = Collection(beir.write(tmp_path / "c", {"one": "same", "two": "same"}))
        assert sorted(found.ids.values()) == ["one", "two"]
        content = Document(text="same").hash
        batches = [each for batch in found.batches() for each in batch]
        assert batches == [(content, "same"), (canonical.digest([content, "two"]).hex(), "same")]

    def test_title_and_text_are_searched(self, folder: Path) -> None:
        line = json.dumps({"_id": "x", "title": "On circles", "text": "They are round."})
        (folder / "corpus.jsonl").write_text(line)
        assert list(Collection(folder).batches()) == [
            [(Document(text="On circles\nThey are round.").hash, "On circles\nThey are round.")]
        ]

    def test_a_document_without_text_is_left_out_and_counted(self, folder: Path) -> None:
        with (folder / "corpus.jsonl").open("a") as file:
            file.write('\n{"_id": "blank", "title": "", "text": " "}')
        found = Collection(folder)
        assert (len(found.ids), found.skipped) == (len(beir.DOCUMENTS), 1)

    def test_a_query_without_a_relevant_document_is_left_out_and_counted(self, folder: Path) -> None:
        found = Collection(folder).queries("test")
        assert "none" not in found.judged
        assert found.judged["even"] == {"sum": 2}
        assert (len(found.judged), found.unjudged) == (5, 1)

    def test_what_the_judgements_name_and_nobody_has_is_counted(self, tmp_path: Path) -> None:
        judged = {"area": {"circle": 1, "lost": 2}, "elsewhere": {"circle": 1}}
        found = Collection(beir.write(tmp_path / "c", test=judged)).queries("test")
        assert (list(found.judged), found.unasked, found.absent) == (["area"], 1, 1)
        assert evaluated(tmp_path / "c")["Recall@100"] == 0.5

    @pytest.mark.parametrize(("query", "is_it"), [("a prime has two  divisors", True), ("primes", False)])
    def test_a_query_that_is_a_document_is_known_by_its_id_and_words(
        self, tmp_path: Path, query: str, is_it: bool
    ) -> None:
        made = beir.write(tmp_path / "c", queries={"prime": query}, test={"prime": {"circle": 1}})
        assert Collection(made).queries("test").themselves == ({"prime"} if is_it else set())

    def test_what_is_no_collection_is_said(self, tmp_path: Path) -> None:
        with pytest.raises(NotFound, match="does not exist"):
            Collection(tmp_path / "nowhere")
        with pytest.raises(Invalid, match="not a BEIR folder"):
            Collection(tmp_path)
        made = beir.write(tmp_path / "c", test={"area": {"circle": 0}})
        with pytest.raises(Invalid, match="no judgements for the split 'dev'"):
            Collection(made).queries("dev")
        with pytest.raises(Invalid, match=r"names no relevant document for any query in queries\.jsonl"):
            Collection(made).queries("test")
        (made / "qrels" / "test.tsv").write_text("area circle 1\n")
        with pytest.raises(InvalidLine, match=r"qrels/test.tsv, line 1: has 1 column,"):
            Collection(made).queries("test")
        (made / "corpus.jsonl").write_text('{"text": "nobody"}')
        with pytest.raises(Invalid, match="no `_id`"):
            Collection(made)


class TestSearching:
    def test_a_query_is_not_among_its_own_hits(self, tmp_path: Path) -> None:
        asked = {"prime": beir.DOCUMENTS["prime"]}
        made = beir.write(tmp_path / "c", queries=asked, test={"prime": {"sum": 1}})
        modes = [choose_mode(name, Params()) for name in ("dense", "sparse", "hybrid")]
        for run in searcher(made, k=2).runs(modes, Collection(made).queries("test")).values():
            assert run["prime"]
            assert "prime" not in run["prime"]
        assert evaluated(made)["themselves"] == 1

    def test_an_index_is_built_once(self, folder: Path) -> None:
        first = evaluated(folder)
        [kept] = (folder.parent / FOLDER).iterdir()
        written = kept.stat().st_mtime_ns, kept.stat().st_ino
        assert evaluated(folder) == first
        assert (kept.stat().st_mtime_ns, kept.stat().st_ino) == written

    def test_a_damaged_index_is_built_again(self, folder: Path) -> None:
        first = evaluated(folder, "dense")
        [kept] = (folder.parent / FOLDER).iterdir()
        (kept / "vectors.faiss").write_bytes(b"")
        assert evaluated(folder, "dense") == first
        assert (kept / "vectors.faiss").stat().st_size

    def test_other_documents_are_another_index(self, folder: Path) -> None:
        evaluated(folder)
        (folder / "corpus.jsonl").write_text('{"_id": "circle", "text": "area"}')
        assert evaluated(folder)["documents"] == 1
        assert len(list((folder.parent / FOLDER).iterdir())) == 2


class TestEnhancing:
    def runs(self, folder: Path, *names: str, **enhance: object) -> dict[str, dict[str, list[str]]]:
        given = Params(enhance=EnhanceParams(**{"terms": {"zebra": ("divisors",)}, **enhance}))  # type: ignore[arg-type]
        return searcher(folder).runs([choose_mode(name, given) for name in names], Collection(folder).queries("test"))

    def test_a_synonym_finds_what_the_words_of_the_query_do_not(self, tmp_path: Path) -> None:
        made = beir.write(tmp_path / "c", queries={"none": "a zebra has"}, test={"none": {"prime": 1}})
        found = self.runs(made, "enhanced", "hybrid")
        assert found["enhanced"]["none"][0] == "prime"
        assert set(found["enhanced"]["none"]) == set(found["hybrid"]["none"])

    def test_a_query_that_the_rules_leave_as_it_is_is_found_as_by_hybrid(self, folder: Path) -> None:
        found = self.runs(folder, "enhanced", "hybrid", synonyms=False, correct=False)
        assert found["enhanced"] == found["hybrid"]


class ByLength:
    def score(self, question: str, documents: Sequence[str]) -> list[float]:
        if "zebra" in question:
            raise ModelFailed(FailureKind.TIMEOUT, "asleep")
        return [1 / len(text) for text in documents]


class TestReranking:
    def reranked(self, folder: Path, reranker: ByLength | None) -> dict[str, list[str]]:
        collection = Collection(folder)
        asking = CollectionSearcher([Faiss(HashedWords()), Bm25()], folder.parent, collection, 5, reranker)
        return asking.runs([choose_mode("rerank", Params())], collection.queries("test"))["rerank"]

    def test_the_fused_documents_are_reordered_by_their_scores(self, folder: Path) -> None:
        shortest_first = sorted(beir.DOCUMENTS, key=lambda document: len(beir.DOCUMENTS[document]))
        assert set(map(tuple, self.reranked(folder, ByLength()).values())) == {tuple(shortest_first)}

    def test_without_a_reranker_the_mode_is_refused(self, folder: Path) -> None:
        with pytest.raises(Invalid, match="needs a reranker") as refused:
            self.reranked(folder, None)
        assert "retrieval.reranker" in str(refused.value.hint)

    def test_a_reranker_that_fails_ends_the_evaluation(self, tmp_path: Path) -> None:
        made = beir.write(tmp_path / "c", test={"none": {"circle": 1}})
        with pytest.raises(Unavailable, match="no score: timeout: asleep"):
            self.reranked(made, ByLength())


class TestModes:
    LISTS = {  # noqa: RUF012 - constant
        "dense": [IndexMatch("a", 0.9), IndexMatch("b", 0.8), IndexMatch("c", 0.1)],
        "sparse": [IndexMatch("c", 9.0), IndexMatch("b", 2.0), IndexMatch("d", 1.0)],
    }

    def ranked(self, name: str, **fusion: object) -> list[str]:
        return choose_mode(name, Params(fusion=FusionParams(**fusion))).rank(self.LISTS)  # type: ignore[arg-type]

    def test_one_list_is_taken_as_it_is(self) -> None:
        assert self.ranked("dense") == ["a", "b", "c"]
        assert self.ranked("sparse") == ["c", "b", "d"]

    def test_hybrid_is_what_a_job_would_do(self) -> None:
        assert self.ranked("hybrid") == ["c", "b", "a", "d"]
        assert self.ranked("hybrid", method="weighted", dense=0.9, sparse=0.1) == self.ranked(
            "weighted", dense=0.9, sparse=0.1
        )

    def test_weighted_takes_its_normaliser_from_the_name_or_the_parameters(self) -> None:
        assert self.ranked("weighted-rank") == self.ranked("weighted", normaliser="rank")
        assert choose_mode("weighted-z-score", Params()).fusion.normaliser == "z-score"
        assert choose_mode("weighted", Params()).fusion.normaliser == "min-max"

    def test_a_share_leaves_the_rest_to_the_other_list(self) -> None:
        base = choose_mode("weighted", Params())
        assert base.with_dense_weight(1).rank(self.LISTS)[:2] == ["a", "b"]
        assert base.with_dense_weight(0).rank(self.LISTS)[:2] == ["c", "b"]
        assert (base.with_dense_weight(0.35).fusion.dense, base.with_dense_weight(0.35).fusion.sparse) == (0.35, 0.65)

    def test_an_unknown_mode_is_refused_with_those_that_there_are(self) -> None:
        with pytest.raises(Invalid, match="unknown mode 'colbert'") as refused:
            choose_mode("colbert", Params())
        assert all(name in str(refused.value.hint) for name in NAMES)


class TestEvaluating:
    def test_every_measure_is_a_key_with_the_mean_over_queries(self, folder: Path) -> None:
        found = evaluated(folder, k=5, metrics=("nDCG@1", "F1@2"))
        per_query = found["per_query"]
        assert isinstance(per_query, dict)
        assert set(per_query) == {"area", "primes", "steep", "round", "even"}
        for name in ("nDCG@5", "Recall@5", "MAP", "nDCG@1", "F1@2"):
            assert found[name] == pytest.approx(sum(each[name] for each in per_query.values()) / 5)
        assert "Precision@10" not in found  # deeper than the lists

    def test_a_relevant_document_at_the_top_of_every_list_is_perfect(self, folder: Path) -> None:
        (folder / "qrels" / "test.tsv").write_text("area\tcircle\t1\nsteep\tslope\t1\n")
        found = evaluated(folder)
        assert (found["nDCG@10"], found["MRR@10"], found["MAP"], found["Recall@100"]) == (1, 1, 1, 1)

    def test_a_query_without_a_hit_counts_0_and_is_counted(self, folder: Path) -> None:
        (folder / "qrels" / "test.tsv").write_text("area\tcircle\t1\nnone\tring\t1\n")
        found = evaluated(folder)
        assert (found["unanswered"], found["queries"], found["nDCG@10"]) == (1, 2, 0.5)

    def test_modes_are_tested_against_others_on_the_same_queries(self, folder: Path) -> None:
        found = evaluated(folder, against=("dense", "hybrid"))
        dense, hybrid = found["against"]  # type: ignore[misc]
        assert (dense["mode"], hybrid["mode"]) == ("dense", "hybrid")
        test = dense["differences"]["nDCG@10"]
        assert test.value == pytest.approx(found["nDCG@10"] - dense["nDCG@10"])
        assert (test.n, test.separable) == (5, test.adjusted < 0.05)

    @pytest.mark.parametrize("asked", ["sparse", "enhanced"])
    def test_the_mode_that_was_asked_for_comes_first_whatever_the_order_of_the_runs(
        self, folder: Path, asked: str
    ) -> None:
        found = evaluated(folder, asked, against=("dense", asked))
        [dense] = found["against"]  # type: ignore[misc]
        assert dense["mode"] == "dense"
        assert dense["MAP"] == evaluated(folder, "dense")["MAP"]
        assert dense["differences"]["MAP"].value == pytest.approx(found["MAP"] - dense["MAP"])

    def test_a_run_of_another_system_can_be_compared_with(self, folder: Path, tmp_path: Path) -> None:
        file = tmp_path / "ours.run"
        evaluated(folder, run=str(file))
        [again] = evaluated(folder, against=(str(file),))["against"]  # type: ignore[misc]
        assert again["differences"]["MAP"].value == 0
        assert evaluated(folder)["MAP"] == again["MAP"]

    def test_a_measure_beyond_the_lists_is_refused(self, folder: Path) -> None:
        with pytest.raises(Invalid, match="nDCG@20 needs 20 documents, but the ranked lists have 10") as refused:
            evaluated(folder, k=10, metrics=("nDCG@20",))
        assert refused.value.hint == "set --k 20"


class TestTrec:
    def test_a_run_survives(self, tmp_path: Path) -> None:
        run = {"q1": ["b", "a", "c"], "q2": ["a"]}
        evaluation.write_run(tmp_path / "run", run)
        assert (tmp_path / "run").read_text().splitlines()[0] == "q1 Q0 b 1 3 mathrag"
        assert evaluation.read_run(tmp_path / "run", 10) == run
        assert evaluation.read_run(tmp_path / "run", 2)["q1"] == ["b", "a"]

    def test_a_run_that_cannot_be_written_is_said(self, tmp_path: Path) -> None:
        with pytest.raises(Invalid, match=r"cannot be written to .*: No such file"):
            evaluation.write_run(tmp_path / "nowhere" / "run", {"q": ["a"]})

    def test_scores_decide_whatever_the_order_of_the_rows(self, tmp_path: Path) -> None:
        (tmp_path / "run").write_text("q Q0 low 1 0.5 x\nq Q0 high 2 2e3 x\n\nq\tQ0\tlow\t3\t0.1\tx\n")
        assert evaluation.read_run(tmp_path / "run", 10) == {"q": ["high", "low"]}

    @pytest.mark.parametrize(
        ("row", "said"),
        [("q Q0 d 1 2", "line 1: has 5 columns, not six"), ("q Q0 d 1 high x", "score 'high' is not a number")],
    )
    def test_a_row_that_cannot_be_read_is_named(self, tmp_path: Path, row: str, said: str) -> None:
        (tmp_path / "run").write_text(row)
        with pytest.raises(InvalidLine, match=said):
            evaluation.read_run(tmp_path / "run", 10)
        with pytest.raises(NotFound, match="does not exist"):
            evaluation.read_run(tmp_path / "other", 10)


# Weights of fusion: chosen on some queries, measured on others.

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


def test_a_threshold_cuts_dense_lists_alone(folder: Path) -> None:
    collection, backends = Collection(folder), [Faiss(HashedWords()), Bm25()]
    whole, cut = (
        CollectionSearcher(backends, folder.parent, collection, 5, threshold=threshold).lists(
            ("dense", "sparse"), collection.queries("test")
        )
        for threshold in (None, 0.3)
    )
    assert cut["sparse"] == whole["sparse"]
    for query, found in whole["dense"].items():
        kept = cut["dense"][query]
        assert kept == found[: len(kept)]
        assert all(match.score >= 0.3 for match in kept)
        assert all(match.score < 0.3 for match in found[len(kept) :])
    assert 0 < sum(map(len, cut["dense"].values())) < sum(map(len, whole["dense"].values()))


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

    def test_the_options_are_those_that_a_job_reads(self, folder: Path) -> None:
        sigmoid = str(tuned(folder, mode="weighted-sigmoid")["set"])
        assert "--set fusion.normaliser=sigmoid --set fusion.slope=1.0" in sigmoid
        assert "slope" not in str(tuned(folder)["set"])
        assert "rrf_k" not in sigmoid

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
        with pytest.raises(Invalid, match="mode `weighted` has no `rrf_k` to tune"):
            tuned(folder, over="rrf_k")

    def test_one_list_has_no_weight(self, folder: Path) -> None:
        with pytest.raises(Invalid, match="mode `dense` has no weights to tune"):
            tuned(folder, mode="dense")

    def test_a_measure_beyond_the_lists_is_refused(self, folder: Path) -> None:
        with pytest.raises(Invalid, match="needs 200 documents, but the ranked lists have 100"):
            tuned(folder, metric="nDCG@200")
