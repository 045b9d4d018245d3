"""The benchmarks: routing, BM25 by a second hand, the worked comparison, their harness."""

import argparse
import inspect
from itertools import combinations
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
from numpy.typing import NDArray

from services.retriever.evaluation import Collection, CollectionSearcher, Evaluate, Queries, evaluate
from services.retriever.index import Bm25, Faiss, tokenise
from shared.pages.pages import find_block_names
from shared.rag import metrics
from tests.unit import beir
from tests.unit.retrieval import HashedWords
from tools.bench import Row, Rows, in_turn, print_rows
from tools.bench.__main__ import add_option
from tools.bench.comparison import COLUMNS, PipelineResult, line, said
from tools.bench.comparison import table as comparison_table
from tools.bench.routing import (
    DEFAULT,
    ItemResult,
    PartFigures,
    against_levels,
    item,
    pareto,
    picture,
    point,
    saved_by_chance,
    table,
    thresholds,
)
from tools.reproduction import demo_transcript as transcript

# The Pareto table of routing: what thresholds cost and bring, computed from two jobs.


def question(
    probability: float | None,
    *calls: str,
    rules: bool | None = True,
    judge: bool | None = True,
    level: int | None = None,
) -> ItemResult:
    return ItemResult(probability, frozenset(calls), rules, judge, level)


ITEMS = [
    question(0.1, "a", "b", rules=False, level=1),
    question(0.3, "b", "c", judge=False, level=2),
    question(0.6, "c", "d", rules=False, level=4),
    question(0.8, "d", "e", level=5),
]


def test_a_call_is_saved_only_if_no_hard_question_waits_for_it() -> None:
    found = point(ITEMS, 0.5)
    assert (found.questions, found.easy, found.calls) == (4, 2, 3)
    assert found.saved == pytest.approx(2 / 5)


def test_savings_grow_slower_than_the_share_of_easy_questions() -> None:
    assert [point(ITEMS, at).saved for at in (0.0, 0.2, 0.5, 0.7, 1.0)] == pytest.approx([0, 0.2, 0.4, 0.6, 1])


def test_easy_questions_are_answered_as_by_rules_and_hard_ones_as_by_the_judge() -> None:
    found = point(ITEMS, 0.5)
    assert (found.pair.gained, found.pair.lost, found.accuracy.value) == (1, 1, 0.75)
    assert point(ITEMS, 0.0).accuracy.value == 0.75
    assert point(ITEMS, 1.0).accuracy.value == 0.5


def test_a_question_that_could_not_be_estimated_is_hard_at_every_threshold() -> None:
    found = point([question(None, "a"), question(0.1, "b")], 1.0)
    assert (found.easy, found.calls) == (1, 1)


def test_items_that_one_of_the_jobs_did_not_grade_cost_calls_and_are_in_no_accuracy() -> None:
    found = point([*ITEMS, question(0.9, "x", rules=None), question(0.9, "y", judge=None)], 0.5)
    assert (found.questions, found.calls, found.pair.items) == (6, 5, 4)


def test_what_chance_saves_is_the_mean_over_all_ways_to_draw() -> None:
    for easy in range(5):
        drawn = list(combinations(ITEMS, easy))
        saved = [1 - len(frozenset().union(*(each.calls for each in ITEMS if each not in some))) / 5 for some in drawn]
        assert saved_by_chance(ITEMS, easy) == pytest.approx(sum(saved) / len(saved))


def test_where_the_judge_rates_nothing_there_is_nothing_to_save() -> None:
    found = point([question(0.1), question(0.9)], 0.5)
    assert (found.calls, found.saved, found.saved_by_chance) == (0, 0, 0)


def test_skill_is_what_a_route_gains_over_drawing_as_many_at_random() -> None:
    right = [question(0.1, judge=False), question(0.9, rules=False)] * 20
    wrong = [question(0.9, judge=False), question(0.1, rules=False)] * 20
    found, other = point(right, 0.5).skill, point(wrong, 0.5).skill
    assert found is not None
    assert other is not None
    assert (found.value, other.value) == (0.5, -0.5)
    assert found.low > 0 > other.high
    assert [point(right, at).by_chance for at in (0.0, 0.5, 1.0)] == pytest.approx([0.5, 0.5, 0.5])
    assert point(right, 0.5).accuracy.value == pytest.approx(1)


def test_thresholds_come_to_every_tenth_of_the_questions_and_hold_the_default_one() -> None:
    items = [question(number / 1000, str(number)) for number in range(100)]
    found = thresholds(items)
    assert [point(items, at).easy for at in found] == [0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 100]
    assert DEFAULT in found


def test_the_tests_of_a_table_are_corrected_together() -> None:
    lossy = [question(number / 100, rules=number % 5 > 0) for number in range(100)]
    for each in pareto(lossy):
        assert each.pair.adjusted >= each.pair.p
    assert any(each.pair.adjusted > each.pair.p for each in pareto(lossy))


def test_an_estimate_is_held_against_levels_where_there_are_some_of_both_kinds() -> None:
    found = against_levels(ITEMS * 10)
    assert found is not None
    assert found.value == 1
    assert against_levels([ITEMS[0], ITEMS[1]]) is None
    assert against_levels([question(0.5)]) is None


def test_an_item_is_read_from_results_and_provenance() -> None:
    steps: list[dict[str, Any]] = [
        {"role": "retrieve", "key": "r", "attempt": {"reply": {"type": "retrieved"}}},
        {"role": "estimate", "key": "e", "attempt": {"reply": {"type": "estimated", "probability": 0.25}}},
        {"role": "judge", "key": "j", "attempt": None},
        {"role": "judge", "key": "j", "attempt": None},
    ]
    found = item({"level": "Level 4", "correct": False}, steps, by_rules=True)
    assert found == ItemResult(0.25, frozenset({"j"}), by_rules=True, by_judge=False, level=4)
    steps[1]["attempt"]["reply"] = {"type": "failure", "kind": "refused"}
    assert item({"level": None, "correct": None}, steps, None) == ItemResult(None, frozenset({"j"}), None, None, None)


def test_what_chance_comes_to_lies_between_rules_and_judge() -> None:
    items = [*ITEMS, question(0.1, "x", rules=None)]
    assert [point(items, at).by_chance for at in (0.0, 0.2, 1.0)] == pytest.approx([0.75, 0.6875, 0.5])
    assert point([question(0.5, judge=None)], 0.7).by_chance is None


def test_a_picture_has_a_point_for_each_threshold() -> None:
    drawn = picture(PartFigures(name="world", area=None, points=pareto(ITEMS)))
    assert drawn.name == "pareto-world"
    assert [(row.saved, row.value, row.chance_value) for row in drawn.rows][-1] == (1, 0.5, 0.5)
    assert len(drawn.rows) == len(thresholds(ITEMS))


def test_a_table_has_a_line_for_each_threshold() -> None:
    lines = table(PartFigures(name="world", area=against_levels(ITEMS * 10), points=pareto(ITEMS * 10))).splitlines()
    assert lines[0] == "ROC AUC of the estimate against the items' levels: 1.000 (1.000 to 1.000)"
    assert lines[4].startswith("| 0.1 | 0 of 40 | 5 | 0.0 % | 0.0 % | 75.0 % (")
    assert lines[-1].startswith("| 1 | 40 of 40 | 0 | 100.0 % | 100.0 % | 50.0 % (")
    assert {line.count("|") for line in lines[2:]} == {9}


# BM25 by a second hand: the formula over dense matrices, with the tokens of the index and without bm25s.
#
# Its lists, measured, equal those of the shipped back end to the third decimal.

K1, B, DEPTH = 1.2, 0.75, 100
MEASURES = ("nDCG@10", "nDCG@5", "Recall@100", "Recall@10", "Precision@10", "F1@10", "MAP", "MRR@10")


def counted(texts: list[list[str]], vocabulary: dict[str, int]) -> NDArray[np.float64]:
    counts = np.zeros((len(texts), len(vocabulary)))
    for row, terms in enumerate(texts):
        for term in terms:
            if term in vocabulary:
                counts[row, vocabulary[term]] += 1
    return counts


def scored(texts: list[str], questions: list[str]) -> NDArray[np.float64]:
    """BM25 [questions, texts]: sum over the question's terms of idf * f / (f + k1 (1 - b + b length / average)).

    Terms that no question has count in the lengths alone.
    """
    documents, asked = [tokenise(text) for text in texts], [tokenise(question) for question in questions]
    vocabulary = {term: number for number, term in enumerate(sorted({term for terms in asked for term in terms}))}
    f = counted(documents, vocabulary)
    lengths = np.array([len(terms) for terms in documents], dtype=np.float64)
    holding = (f > 0).sum(axis=0)
    idf = np.log(1 + (len(texts) - holding + 0.5) / (holding + 0.5))
    norm = K1 * (1 - B + B * lengths / lengths.mean())
    weights = idf * f / (f + norm[:, None])
    product: NDArray[np.float64] = counted(asked, vocabulary) @ weights.T
    return product


def ranked(collection: Collection, queries: Queries) -> dict[str, list[str]]:
    keys, texts = zip(*sorted(each for batch in collection.batches() for each in batch), strict=True)
    scores = scored(list(texts), list(queries.texts.values()))
    return {
        query: [collection.ids[keys[at]] for at in np.argsort(-row, kind="stable")[:DEPTH] if row[at] > 0]
        for query, row in zip(queries.texts, scores, strict=True)
    }


def proved(folder: Path, data_dir: Path) -> None:
    collection = Collection(folder)
    searcher = CollectionSearcher([Faiss(HashedWords()), Bm25()], data_dir, collection, DEPTH)
    ours = evaluate(Evaluate(folder=str(folder), mode="sparse", k=DEPTH), collection, searcher)
    queries = collection.queries("test")
    theirs = metrics.measure_per_query(queries.judged, ranked(collection, queries), MEASURES)
    for name in MEASURES:
        assert ours[name] == pytest.approx(np.mean([found[name] for found in theirs.values()]), abs=5e-4), name


@pytest.mark.parametrize("seed", range(3))
def test_bm25_equals_a_second_implementation_on_a_generated_collection(tmp_path: Path, seed: int) -> None:
    random = np.random.default_rng(seed)
    words = [f"w{n}" for n in range(200)]
    zipf = 1 / np.arange(1, 201)

    def text(length: int) -> str:
        return " ".join(random.choice(words, length, p=zipf / zipf.sum()))

    documents = {f"d{n}": text(int(random.integers(3, 80))) for n in range(150)}
    queries = {f"q{n}": text(int(random.integers(1, 8))) for n in range(30)}
    judged = {
        query: {str(document): int(random.integers(1, 4)) for document in random.choice(list(documents), 6)}
        for query in queries
    }
    proved(beir.write(tmp_path / "c", documents, queries, test=judged), tmp_path)


@beir.needs_cranfield
def test_bm25_equals_a_second_implementation_on_cranfield(tmp_path: Path) -> None:
    proved(beir.CRANFIELD, tmp_path)


# The worked comparison: one line a pipeline, with what the API says of it against the baseline.


def report(**changed: Any) -> dict[str, Any]:
    return {
        "state": "completed", "accuracy": {"value": 0.5, "low": 0.4, "high": 0.6}, "failures": {},
        "extraction": {"ok": 100}, "calls_made": {"retrieve": 100, "judge": 0, "generate": 100}, "model_loads": 1,
        "seconds": 12.3, "refused": 0, "fallbacks": {}, "retrieval": None, **changed,
    }  # fmt: skip


def row(name: str, **changed: Any) -> PipelineResult:
    return PipelineResult(name, "", report(**changed), clean=True)


def answers(request: httpx2.Request) -> httpx2.Response:
    asked = request.url.params
    pairs = [{"left": name, "words": f"{name} against {asked['baseline']}"} for name in asked.get_list("job")]
    return httpx2.Response(200, json={"pairs": [pair for pair in pairs if pair["left"] != asked["baseline"]]})


def test_the_api_compares_all_that_completed_with_dense_at_once() -> None:
    rows = [
        *(row(name, id=f"world-{name}") for name in ("dense", "crag")),
        PipelineResult("self-rag", "no reflection tokens", None, clean=True),
        row("hyde", state="failed", id="world-hyde"),
    ]
    with httpx2.Client(base_url="http://api", transport=httpx2.MockTransport(answers)) as api:
        assert said(api, "world", rows) == {"crag": "world-crag against world-dense"}
        assert said(api, "world", rows[1:]) == said(api, "world", rows[:1]) == {}


def test_a_line_shows_failures_refusals_fallbacks_and_the_calls_of_each_role() -> None:
    figures = {
        "failures": {"truncated": 2}, "refused": 8, "fallbacks": {"rerank": {"not_configured": 3}},
        "retrieval": {"final": {"nDCG@10": {"value": 0.61234}}},
    }  # fmt: skip
    shown = line(row("enhanced", **figures), "better: +10.0 points")
    cells = [cell.strip() for cell in shown.strip("|").split("|")]
    assert dict(zip(COLUMNS, cells, strict=True)) == {
        "pipeline": "enhanced",
        "accuracy (Wilson 95 %)": "50.0 % (40.0 to 60.0)",
        "against dense (McNemar, Holm)": "better: +10.0 points",
        "nDCG@10": "0.612",
        "failed": "truncated 2",
        "refused": "8",
        "fallbacks": "rerank: not_configured 3",
        "calls made": "retrieve 100, generate 100",
        "loads": "1",
        "seconds": "12",
        "audit": "clean",
    }


def test_a_pipeline_that_the_service_refuses_stands_in_the_table_with_its_reason() -> None:
    refused = PipelineResult("self-rag", "the model has no reflection tokens", None, clean=True)
    lines = comparison_table([row("dense"), refused], {}).splitlines()
    assert lines[1].startswith("| self-rag | not run: the model has no reflection tokens | -")
    assert lines[1].count("|") == lines[0].count("|")


def test_a_job_that_failed_as_a_whole_stands_there_with_its_reason() -> None:
    failed = PipelineResult("crag", "the fallback corpus is gone", report(state="failed"), clean=True)
    assert "not run: the fallback corpus is gone" in comparison_table([failed], {})


def test_accuracy_without_a_single_verdict_is_no_number() -> None:
    nothing = row("dense", accuracy={"value": None, "low": 0.0, "high": 1.0})
    assert "| n/a |" in comparison_table([nothing], {})


# The harness of the benchmarks: sides take turns, ratios are to the first one, and parameters are options.


def test_sides_take_turns_and_are_compared_with_the_first() -> None:
    runs: list[str] = []
    figures = {"floor": iter([9.0, 1.0, 2.0, 3.0]), "system": iter([9.0, 2.0, 6.0, 6.0])}

    def side(name: str) -> float:
        runs.append(name)
        return next(figures[name])

    rows: list[Row] = []

    def collect() -> Rows:
        ratios = yield from in_turn({name: lambda name=name: side(name) for name in figures}, 3, warm=1)  # type: ignore[misc]
        yield ratios["system"]

    *rows, ratio = collect()  # type: ignore[assignment]
    assert ratio == 3.0
    assert runs == ["floor", "system"] * 4
    assert [(row["measured"], row["median, s"], row["rounds, s"]) for row in rows] == [
        ("floor", 2.0, [1.0, 2.0, 3.0]),
        ("system", 6.0, [2.0, 6.0, 6.0]),
    ]
    assert rows[1]["over floor"] == "3.000 (2.000 to 3.000)"


def test_a_side_without_a_figure_is_timed() -> None:
    (row,) = in_turn({"nothing": lambda: "a result"}, 1)
    assert isinstance(row["median, s"], float)


def test_rows_are_printed_as_tables_with_a_heading_for_other_columns(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows([{"a": 1, "b": 0.123456}, {"a": None, "b": [1.5, 2345.6]}, "A sentence.", {"c": "x"}, 1.0666])
    assert capsys.readouterr().out.splitlines() == [
        "", "| a | b |", "|---|---|", "| 1 | 0.1235 |", "| - | 1.5, 2,346 |", "", "A sentence.", "", "| c |", "|---|",
        "| x |", "", "figure: 1.067",
    ]  # fmt: skip


def test_parameters_are_options_of_their_types() -> None:
    def measured(
        folder: Path, most_items: int = 3, out: Path | None = None, names: tuple[str, ...] = (), *, large: bool = False
    ) -> None: ...

    parser = argparse.ArgumentParser()
    for parameter in inspect.signature(measured, eval_str=True).parameters.values():
        add_option(parser, parameter)
    assert vars(parser.parse_args(["in", "--most-items", "5", "--out", "o", "--names", "a", "b", "--large"])) == {
        "folder": Path("in"), "most_items": 5, "out": Path("o"), "names": ["a", "b"], "large": True,
    }  # fmt: skip
    assert vars(parser.parse_args(["in"])) == {
        "folder": Path("in"), "most_items": 3, "out": None, "names": (), "large": False,
    }  # fmt: skip


def test_the_page_has_a_place_for_the_transcript() -> None:
    assert find_block_names(transcript.PAGE.read_text("utf-8")) == ["transcript"]
