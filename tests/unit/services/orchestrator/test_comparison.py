"""Systems side by side: what is compared, and what retrieval found."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from fractions import Fraction
from typing import Any

import pytest

from mathrag.errors import Conflict
from mathrag.intervals import Repeats
from services.orchestrator.experiments.report import Recommendation, recommend
from services.orchestrator.reports import comparison
from services.orchestrator.reports.comparison import (
    MOST_CHARACTERS,
    MOST_LINES,
    Compared,
    Comparison,
    System,
    Versus,
    compare_prompts,
    find_best,
    find_pair,
    swap_sides,
    write_finding,
)
from services.orchestrator.reports.retrieval import MOST, Findings, Guided, Guiding, Retrieval
from services.orchestrator.reports.tally import Accuracy
from shared.samples import Candidate, Decision, Extraction, Outcome, Trace
from shared.statistics import significance
from shared.statistics.significance import Difference, Mean
from shared.storage.samples import ABSENT, SampleEnding, SampleWithOutcome
from tests.unit.services.orchestrator.test_report import sample

# Endings of both jobs are read at once.


@pytest.mark.anyio
async def test_a_failure_in_reading_one_job_ends_the_reading_of_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = []

    async def stream(_: Any, job: int) -> AsyncIterator[list[SampleEnding]]:
        if job == 2:
            raise Conflict("it cannot be read")
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(job)
        yield []

    monkeypatch.setattr(comparison, "stream_endings", stream)
    both = [System("left", {"items": 1}), System("right", {"items": 2})]
    with pytest.raises(Conflict, match="it cannot be read"):
        await comparison.compare(None, both, endings=True)  # type: ignore[arg-type]  # no database is reached
    assert ended == [1]


# Headlines of comparisons: what is not separable is not ranked.


YES, NO = Fraction(1), Fraction(0)


def system(name: str, value: float | None) -> Compared:
    return Compared(
        name=name, jobs=(), datasets=("items",), pipeline="dense", items=40,
        accuracy=Accuracy(value=value, low=0, high=1, items=40, correct=0, graded=40),
        measured=Mean(value=value, low=0.0, high=1.0, n=40), bootstrap=None,
        repeats=Repeats(accuracies=(), items=0, mean=None, std=None), endings={},
    )  # fmt: skip


def versus(left: str, right: str, gained: int, lost: int, *, items: int = 40, tests: int = 1) -> Versus:
    counts = Counter({(YES, NO): gained, (NO, YES): lost, (YES, YES): items - gained - lost})
    found = significance.compare_pair([counts] if items else [], tests=tests)
    fields = {name: getattr(found, name) for name in found.__struct_fields__}
    return Versus(
        left=left, right=right, left_only=1, right_only=2, moved={}, words=significance.describe_pair(found), **fields
    )


SYSTEMS = [system("hybrid", 0.6), system("dense", 0.5), system("sparse", 0.2)]


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ([versus("hybrid", "dense", 6, 2)],
         "No variant beats dense at n = 40; hybrid leads by 10 points, not separable"),
        ([versus("hybrid", "dense", 2, 6)], "No variant beats dense at n = 40"),
        ([versus("hybrid", "dense", 12, 0), versus("sparse", "dense", 3, 3)],
         "hybrid beats dense at n = 40, by 30 points"),
        ([versus("hybrid", "dense", 12, 0), versus("gate", "dense", 11, 0), versus("sparse", "dense", 0, 20)],
         "hybrid and gate beat dense at n = 40, by 27.5 to 30 points; sparse is worse, by 50 points"),
        ([versus(f"v{n}", "dense", 20 - n, 0, items=36 + n) for n in range(5)],
         "v0 and 4 others beat dense at n = 36 to 40, by 40 to 55.6 points"),
    ],
)  # fmt: skip
def test_with_a_baseline_only_what_is_separable_beats_it(found: list[Versus], said: str) -> None:
    assert write_finding(SYSTEMS, found, "dense") == said


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ([versus("hybrid", "dense", 6, 2), versus("sparse", "hybrid", 3, 4), versus("dense", "sparse", 1, 1)],
         "No two are separable at n = 40; hybrid leads by 2.5 points, not separable"),
        ([versus("dense", "hybrid", 0, 12), versus("hybrid", "sparse", 20, 0), versus("dense", "sparse", 1, 1)],
         "hybrid beats all others at n = 40, by 30 to 50 points"),
        ([versus("dense", "hybrid", 1, 2), versus("hybrid", "sparse", 20, 0), versus("dense", "sparse", 1, 1)],
         "hybrid beats sparse at n = 40; dense is not separable from it"),
        ([versus("hybrid", "dense", 2, 2), versus("hybrid", "sparse", 3, 3), versus("dense", "sparse", 9, 0)],
         "No variant stands out at n = 40"),
        ([versus("hybrid", "dense", 12, 0)], "hybrid beats dense at n = 40, by 30 points"),
    ],
)  # fmt: skip
def test_without_one_the_best_is_held_against_the_others(found: list[Versus], said: str) -> None:
    assert write_finding(SYSTEMS, found, None) == said


ASKED: dict[str, Any] = {
    "baseline": "dense",
    "params": {"context_size": 2, "gate": {"tau": 0.3}},
    "variants": [
        {"name": name, "pipeline": pipeline, "params": params}
        for name, pipeline, params in (
            ("dense", "dense", {}), ("hybrid", "hybrid", {}), ("sparse", "sparse", {}),
            ("gate", "mathrag-gate", {"gate": {"items": 20}}),
        )
    ],
}  # fmt: skip


def recommended(*pairs: Versus, asked: dict[str, Any] = ASKED) -> Recommendation:
    systems = [*SYSTEMS, system("gate", 0.7)]
    compared = Comparison(measure="accuracy", baseline="dense", finding="", jobs=systems, pairs=[*pairs], measures=[],
                          notes=[])  # fmt: skip
    found = recommend(compared, [], asked)
    assert found is not None
    return found


def test_the_best_of_what_is_separably_better_is_recommended_with_the_parameters_that_it_reads() -> None:
    best = versus("gate", "dense", 14, 1, tests=3)
    assert best.corrected is not None
    assert best.difference is not None
    found = recommended(versus("hybrid", "dense", 12, 0), best, versus("sparse", "dense", 0, 20))
    assert (found.variant, found.pipeline, found.separable) == ("gate", "mathrag-gate", True)
    assert found.params == {"context_size": 2, "gate": {"tau": 0.3, "items": 20}}
    low, high = best.corrected.low or 0, best.corrected.high or 0
    assert low < (best.difference.low or 0)
    assert f"use gate, which is better than dense: +32.5 points ({100 * low:+.1f} to {100 * high:+.1f})" in found.words


def test_the_baseline_is_recommended_if_no_lead_is_separable() -> None:
    found = recommended(versus("hybrid", "dense", 6, 2), versus("gate", "dense", 4, 4))
    assert (found.variant, found.separable, found.params) == ("dense", False, {"context_size": 2})
    needed = versus("hybrid", "dense", 6, 2).needed
    assert found.words.startswith("no variant is separable from dense on 40 questions: use dense; hybrid leads by 10.0")
    assert f"a comparison of these two alone needs about {needed:,} questions. Model calls" in found.words
    worse = recommended(versus("sparse", "dense", 0, 20))
    assert worse.words.startswith("no variant beats dense on 40 questions: use dense. Model calls")


def test_nothing_is_recommended_without_a_baseline_or_a_value_or_with_several_points() -> None:
    def nothing(names: Sequence[str], pair: Versus, asked: dict[str, Any]) -> bool:
        systems = [system(name, 0.5) for name in names]
        compared = Comparison(measure="accuracy", baseline="dense", finding="", jobs=systems, pairs=[pair],
                              measures=[], notes=[])  # fmt: skip
        return recommend(compared, [], asked) is None

    better, empty = versus("hybrid", "dense", 12, 0), versus("hybrid", "dense", 0, 0, items=0)
    assert not nothing(["dense", "hybrid"], better, ASKED)
    assert nothing(["dense", "hybrid"], better, {**ASKED, "baseline": None})
    assert nothing(["dense", "hybrid"], empty, ASKED)
    assert nothing(["dense context_size=1", "hybrid context_size=1"], better, ASKED)


def test_where_nothing_is_graded_the_headline_says_so() -> None:
    empty = versus("hybrid", "dense", 0, 0, items=0)
    assert write_finding(SYSTEMS, [empty], "dense").startswith("Nothing can be compared yet")
    assert write_finding([system("hybrid", None)], [versus("hybrid", "dense", 1, 0)], None).startswith("Nothing")
    assert find_best([system("hybrid", None)]) is None


def test_a_pair_is_found_from_either_side() -> None:
    found = [versus("hybrid", "dense", 6, 2)]
    seen = find_pair(found, "dense", "hybrid")
    assert seen is not None
    assert (seen.left, seen.right, seen.gained, seen.lost, seen.left_only) == ("dense", "hybrid", 2, 6, 2)
    assert seen.words.startswith("not separable at n = 40: -10.0 points")
    assert swap_sides(seen) == found[0]
    assert find_pair(found, "hybrid", None) == found[0]
    assert find_pair(found, "dense", None) is None


# Where two prompts differ: what is left out, what is cut.


def told(left: str, right: str) -> list[tuple[str, str]]:
    return [(line.side, line.text) for line in compare_prompts(left, right).lines]


def test_equal_prompts_have_no_lines() -> None:
    found = compare_prompts("a\nb", "a\nb")
    assert (found.lines, found.cut) == ([], False)


def test_what_differs_stands_among_three_equal_lines() -> None:
    equal = [f"line {n}" for n in range(10)]
    left, right = "\n".join([*equal, "old", *equal]), "\n".join([*equal, "new", "newer", *equal])
    before, after = [("both", line) for line in equal[-3:]], [("both", line) for line in equal[:3]]
    assert told(left, right) == [
        ("gap", "7 equal lines"), *before, ("left", "old"), ("right", "new"), ("right", "newer"), *after,
        ("gap", "7 equal lines"),
    ]  # fmt: skip


def test_long_prompts_are_cut_and_say_so() -> None:
    long = "x" * MOST_CHARACTERS
    assert compare_prompts(long + "a", long + "b").cut
    assert not compare_prompts(long, "y" + long[1:]).cut
    many = "\n".join("x" * MOST_LINES)
    assert compare_prompts(many + "\na", many).cut
    assert compare_prompts(many + "\na", many).lines == []


def test_empty_lines_and_no_line_differ() -> None:
    assert told("a", "a\n") == [("both", "a"), ("right", "")]
    assert told("", "a") == [("left", ""), ("right", "a")]


# How good a job's documents were: orders before and after reranking, the prompt, items and repeats.


GOLD = {0: {"a": 2}, 1: {"b": 1, "c": 1}}


def answered(index: int, order: str, fused: str = "", context: str = "", repeat: int = 0) -> SampleWithOutcome:
    scores = {document: 1 / rank for rank, document in enumerate(fused, start=1)}
    candidates = tuple(
        Candidate(document=document, rank=rank, fused=scores.get(document)) for rank, document in enumerate(order, 1)
    )
    outcome = Outcome(answer="1", extraction=Extraction.OK, context=tuple(context), trace=Trace(candidates=candidates))
    return sample(index, repeat=repeat), outcome


def found(*batches: Sequence[SampleWithOutcome], gold: dict[int, dict[str, int]] = GOLD) -> Retrieval:
    findings = Findings()
    for batch in batches:
        findings.add(batch, gold)
    figures = findings.figures()
    assert figures is not None
    return figures


def test_the_order_before_reranking_and_the_one_after_it_are_measured_apart() -> None:
    figures = found([answered(0, "ax", fused="xa"), answered(1, "bcx", fused="bcx")])
    assert (figures.fused["MRR"].value, figures.final["MRR"].value) == (0.75, 1.0)
    test = figures.reranking["MRR"]
    assert isinstance(test, Difference)
    assert (test.value, test.n) == (0.25, 2)


def test_a_document_that_fusion_did_not_find_has_no_place_before_reranking() -> None:
    figures = found([answered(0, "ax", fused="x"), answered(1, "bc", fused="bc")])
    assert figures.fused["Recall@10"].value == 0.5
    assert figures.final["Recall@10"].value == 1


def test_one_index_alone_has_no_order_before() -> None:
    figures = found([answered(0, "a"), answered(1, "xb")])
    assert (figures.fused, figures.reranking) == ({}, {})
    assert figures.final["MRR"].value == 0.75


def test_the_prompt_has_a_recall_of_its_own() -> None:
    assert found([answered(0, "a", context="a"), answered(1, "bcx", context="bx")]).context.value == 0.75


def test_repeats_of_an_item_count_as_one() -> None:
    figures = found([answered(0, "a"), answered(0, "xa", repeat=1)], [answered(0, "x", repeat=2), answered(1, "b")])
    assert (figures.items, figures.final["MRR"].n) == (2, 2)
    assert figures.final["MRR"].value == pytest.approx((0.5 + 1) / 2)


def test_a_document_that_the_corpus_does_not_hold_is_not_found_and_counted() -> None:
    gold = {0: {"a": 1, f"{ABSENT}lost": 1}}
    figures = found([answered(0, "a"), answered(0, "a", repeat=1)], gold=gold)
    assert (figures.absent, figures.final["Recall@10"].value) == (1, 0.5)


def test_samples_that_failed_or_whose_item_names_no_document_are_in_no_figure() -> None:
    batch = [(sample(0, state="failed"), None), answered(7, "a")]
    findings = Findings()
    findings.add(batch, GOLD)
    assert findings.figures() is None
    findings.add([answered(8, "")], {8: {"a": 1}})
    figures = findings.figures()
    assert figures is not None
    assert figures.items == 1


def test_a_search_that_finds_nothing_counts_as_zero_among_others() -> None:
    figures = found([answered(0, ""), answered(1, "bc")])
    assert (figures.final["Recall@10"].value, figures.final["Recall@10"].n) == (0.5, 2)


def test_a_job_that_searched_nothing_has_figures_of_its_prompts_alone() -> None:
    figures = found([answered(0, "", context="a"), answered(1, "", context="bx")])
    assert (figures.final, figures.fused, figures.reranking) == ({}, {}, {})
    assert figures.context.value == 0.75


# What a report says of rules.

NAMED = Decision(stage="relation", action="named", detail={"relation": "r", "bank": "b"})
NONE = Decision(stage="relation", action="none", detail={"bank": "b"}, fallback="no_rule")


def rule(number: int, *documents: str, **detail: Any) -> Decision:
    told = {"rule": f"text {number}", "number": number, "certainty": 0.5, "documents": list(documents), **detail}
    return Decision(stage="rule", action="search", detail=told)


def decided(index: int, correct: bool | None, *decisions: Decision) -> SampleWithOutcome:
    outcome = Outcome(answer=None, extraction=Extraction.OK, trace=Trace(decisions=decisions))
    return sample(index, correct=correct), outcome


def figures(*samples: SampleWithOutcome) -> Guided | None:
    guiding = Guiding()
    guiding.add(samples)
    return guiding.figures()


def test_questions_with_and_without_rules_are_told_apart() -> None:
    found = figures(
        decided(0, True, NAMED, rule(3, "a", "b"), rule(7, "a")), decided(1, False, NAMED, rule(3, "c")),
        decided(2, True, NONE), (sample(3), None),
    )  # fmt: skip
    assert found is not None
    assert (found.bank, found.relations, found.unguided, found.used) == ("b", {"named": 2, "none": 1}, 1, 2)
    assert (found.with_rules.correct, found.with_rules.graded) == (1, 2)
    assert (found.without_rules.correct, found.without_rules.graded) == (1, 1)
    assert [(each.number, each.samples, each.documents, each.accuracy.value) for each in found.rules] == [
        (3, 2, 3, 0.5),
        (7, 1, 1, 1.0),
    ]


def test_a_rule_of_the_prompt_alone_has_brought_no_documents() -> None:
    prompt = Decision(stage="rule", action="prompt", detail={"rule": "t", "number": 1, "certainty": 1.0})
    found = figures(decided(0, None, NAMED, prompt))
    assert found is not None
    assert [(each.samples, each.documents) for each in found.rules] == [(1, 0)]


def test_the_rules_that_guided_most_are_listed() -> None:
    found = figures(
        decided(0, True, NAMED, *(rule(number) for number in range(50, 0, -1))), decided(1, True, NAMED, rule(9))
    )
    assert found is not None
    assert (found.used, [each.number for each in found.rules][:3], len(found.rules)) == (50, [9, 1, 2], MOST)


def test_a_job_without_rules_has_nothing_to_say() -> None:
    assert figures(decided(0, True, Decision(stage="crag", action="correct"))) is None
