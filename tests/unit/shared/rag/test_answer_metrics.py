"""Metrics on scripted labels, with values computed by hand."""

import itertools
import random
from collections.abc import Callable, Iterator

import pytest

from shared.calls import Call, Expected, Judge, Write
from shared.params import MetricsParams
from shared.processes.children import limit_processor_time
from shared.rag.answer_metrics import (
    CLAIM_SCORES,
    METRICS,
    ClaimTable,
    MeasuredAnswer,
    Metric,
    Scores,
    adopt,
    get_metric,
    measure_answer,
    score_claims,
    split_units,
)
from shared.replies import Document, Failure, FailureKind, Generated, Rated, Reply
from shared.samples import Control, ControlScore, Item, MetricScore

A, B, C = "a" * 64, "b" * 64, "c" * 64
Judgement = int | str
"""A label, or the kind of a failure."""
Rule = Callable[[Judge], Judgement]


def labels(*given: Judgement, addresses: Judgement = 4) -> Rule:
    """Label the support of sentences and documents in the order of the calls."""
    rest = iter(given)
    return lambda call: addresses if call.rubric.startswith("addresses") else next(rest)


def reply_to(label: Judgement) -> Reply:
    return Rated(rating=label, text="") if isinstance(label, int) else Failure(kind=FailureKind(label), detail="")


def measure(answer: MeasuredAnswer, rule: Rule, *names: str, text: str = "") -> tuple[Scores, list[list[Call]]]:
    """Return the scores, and the calls of each round; `text` is what a `Write` call is answered with."""
    steps = measure_answer(answer._replace(params=MetricsParams(names=names, unit=answer.params.unit)))
    rounds: list[list[Call]] = []
    given = None
    while True:
        try:
            asked = list(steps.send(given))  # type: ignore[arg-type]
        except StopIteration as stop:
            return stop.value.scores, rounds
        rounds.append(asked)
        given = [
            Generated(text=text) if isinstance(call, Write) else reply_to(rule(call))  # type: ignore[arg-type]
            for call in asked
        ]


def answer(reply: str = "", *context: str, question: str = "Which?", gold: str | None = None) -> MeasuredAnswer:
    return MeasuredAnswer(item=Item(ordinal=0, question=question, gold=gold), reply=reply, context=context)


def one(given: MeasuredAnswer, rule: Rule, name: str) -> MetricScore:
    return measure(given, rule, name)[0][name]


FOUR = "One is so. Two is so. Three is so. Four is so."


# faithfulness


def test_faithfulness_is_the_share_of_supported_sentences() -> None:
    scores, rounds = measure(answer(FOUR, A), labels(3, 3, 2, 3), "faithfulness")
    assert scores["faithfulness"].value == 0.75
    assert [part.label for part in scores["faithfulness"].parts] == [3, 3, 2, 3]
    assert [len(asked) for asked in rounds] == [5]


def test_a_missing_label_widens_the_bounds_and_is_no_score() -> None:
    score = one(answer("One is so. Two is so. Three is so.", A), labels(3, "unparsed", 3), "faithfulness")
    assert (score.value, score.failures) == (None, {"unparsed": 1})
    assert (score.low, score.high) == (pytest.approx(2 / 3), 1.0)


def test_a_reply_that_declines_has_no_faithfulness() -> None:
    score = one(answer("I do not know.", A), labels(2, addresses=1), "faithfulness")
    assert (score.value, score.not_applicable) == (None, "the reply declines to answer")


def test_nothing_is_faithful_to_a_search_that_found_nothing() -> None:
    scores, rounds = measure(answer("One is so. Two is so."), labels(), "faithfulness")
    assert scores["faithfulness"].value == 0.0
    assert [len(asked) for asked in rounds] == [1]


def test_a_reply_without_a_search_has_no_faithfulness() -> None:
    score = one(answer("One is so.")._replace(searched=False), labels(), "faithfulness")
    assert score.not_applicable == "nothing was searched"


def test_a_reply_that_may_have_declined_has_bounds_only() -> None:
    score = one(answer("One is so. Two is so.", A), labels(3, 2, addresses="truncated"), "faithfulness")
    assert (score.value, score.failures, score.low, score.high) == (None, {"truncated": 1}, 0.5, 0.5)


def test_documents_that_do_not_fit_together_are_asked_one_by_one() -> None:
    given = labels("context_exceeded", 1, 3, addresses=4)
    scores, rounds = measure(answer("One is so.", A, B), given, "faithfulness")
    assert [call.documents for call in rounds[1] if isinstance(call, Judge)] == [(A,), (B,)]
    assert scores["faithfulness"].value == 1.0
    assert scores["faithfulness"].parts[0].disputed


@pytest.mark.parametrize(
    ("given", "value", "low"), [((2, 1), 0.0, None), ((2, "unparsed"), None, 0.0), ((3, "unparsed"), 1.0, None)]
)
def test_of_documents_alone_the_best_label_counts(
    given: tuple[Judgement, ...], value: float | None, low: float | None
) -> None:
    score = one(answer("One is so.", A, B), labels("context_exceeded", *given), "faithfulness")
    assert (score.value, score.low) == (value, low)


def test_the_text_that_the_generator_saw_is_the_source() -> None:
    given = answer("One is so.", A)._replace(passage="What was kept.")
    _, rounds = measure(given, labels(3), "faithfulness")
    [_, support] = rounds[0]
    assert isinstance(support, Judge)
    assert (support.documents, support.slots["documents"]) == ((), "What was kept.\n\n")


def test_a_reply_of_too_many_sentences_is_not_measured() -> None:
    given = answer("One is so. " * 41, A)
    scores, rounds = measure(given, labels(), "faithfulness")
    assert (scores["faithfulness"].failures, rounds) == ({"too_long": 1}, [])


def test_a_sentence_is_read_with_the_one_before_it() -> None:
    _, rounds = measure(answer("Ada left. She was ill.", A), labels(3, 3), "faithfulness")
    slots = [call.slots for call in rounds[0] if isinstance(call, Judge)][1:]
    assert slots == [{"sentence": "Ada left."}, {"sentence": "She was ill.", "before": "Sentence before: Ada left.\n"}]


def test_chinese_questions_have_chinese_prompts() -> None:
    _, rounds = measure(answer("巴黎。", A, question="法国的首都是哪里？"), labels(3), "faithfulness")
    assert {call.rubric for call in rounds[0] if isinstance(call, Judge)} == {"addresses-zh", "support-zh"}


# What a reply is split into


@pytest.mark.parametrize(
    ("reply", "units"),
    [
        ("42", ["42"]),
        ("Paris", ["Paris"]),
        ("## Result\nIt is 5. Is that all?", ["It is 5."]),
        ("**Answer:**\n1. It is 5.\n2. It is 6.", ["1. It is 5.", "2. It is 6."]),
        ("The final answer is:\n\n**Paris**", ["**Paris**"]),
        ("We add them.\n\n42", ["We add them.", "42"]),
        ("We add them.\n\n$$42$$", ["We add them.", "$$42$$"]),
        ("It is so. [1]", ["It is so."]),
        ("Why?", []),
        ("", []),
        ("因为它是偶数。所以答案是4。", ["因为它是偶数。", "所以答案是4。"]),
        (r"We have \(x = 1.5\). Then \[x^2 = 2.25.\]", [r"We have \(x = 1.5\).", r"Then \[x^2 = 2.25.\]"]),
    ],
)
def test_questions_headings_and_bare_markers_are_no_units(reply: str, units: list[str]) -> None:
    assert [unit.text for unit in split_units(reply)] == units


def test_the_judge_can_list_the_claims_of_a_reply() -> None:
    given = answer("Ada, who was ill, left.", A)._replace(params=MetricsParams(unit="claims"))
    scores, rounds = measure(given, labels(3, 2), "faithfulness", text="1. Ada was ill.\n2. Ada left.")
    assert scores["faithfulness"].value == 0.5
    assert [part.text for part in scores["faithfulness"].parts] == ["Ada was ill.", "Ada left."]
    assert [len(asked) for asked in rounds] == [1, 3]


@pytest.mark.parametrize(("text", "failures"), [("NONE", {}), ("I cannot do that", {"unparsed": 1})])
def test_without_numbered_lines_there_are_no_claims(text: str, failures: dict[str, int]) -> None:
    given = answer("Ada left.", A)._replace(params=MetricsParams(unit="claims"))
    score = measure(given, labels(), "faithfulness", text=text)[0]["faithfulness"]
    assert (score.value, score.failures) == (None, failures)


# What was shown


@pytest.mark.parametrize(
    ("ratings", "relevance", "precision"),
    [
        ((5, 3, 1), 0.5, 1.0),
        ((5, 1, 4), pytest.approx(7 / 12), pytest.approx(5 / 6)),
        ((1, 5), 0.5, 0.5),
        ((1, 3), 0.25, 0.0),
    ],
)
def test_relevance_is_a_mean_and_precision_an_order(
    ratings: tuple[int, ...], relevance: float, precision: float
) -> None:
    given = answer("Yes.", *(A, B, C)[: len(ratings)])
    scores, rounds = measure(given, labels(*ratings), "context_relevance", "context_precision")
    assert (scores["context_relevance"].value, scores["context_precision"].value) == (relevance, precision)
    assert [len(asked) for asked in rounds] == [len(ratings)]  # both read the same ratings


def test_a_missing_rating_bounds_relevance_and_leaves_precision_open() -> None:
    scores, _ = measure(answer("Yes.", A, B), labels(5, "unparsed"), "context_relevance", "context_precision")
    assert (scores["context_relevance"].low, scores["context_relevance"].high) == (0.5, 1.0)
    assert (scores["context_precision"].low, scores["context_precision"].high) == (0.0, 1.0)


@pytest.mark.parametrize(("label", "value"), [(3, 1.0), (2, 0.0), (1, 0.0), ("unparsed", None)])
def test_documents_are_sufficient_if_one_answer_follows(label: Judgement, value: float | None) -> None:
    assert one(answer("Yes.", A), labels(label), "context_sufficiency").value == value


def test_no_documents_are_not_sufficient_and_nobody_is_asked() -> None:
    scores, rounds = measure(answer("Yes."), labels(), "context_sufficiency")
    assert (scores["context_sufficiency"].value, rounds) == (0.0, [])


@pytest.mark.parametrize(("label", "value", "declined"), [(4, 1.0, 0.0), (3, 0.5, 0.0), (2, 0.0, 0.0), (1, 0.0, 1.0)])
def test_a_reply_is_relevant_if_it_answers_what_was_asked(label: int, value: float, declined: float) -> None:
    scores, _ = measure(answer("Yes."), labels(addresses=label), "answer_relevance")
    assert (scores["answer_relevance"].value, scores["declined"].value) == (value, declined)


def test_a_question_that_the_pipeline_refused_costs_no_call() -> None:
    scores, rounds = measure(answer("")._replace(refused=True), labels(), "answer_relevance")
    assert (scores["answer_relevance"].value, scores["declined"].value, rounds) == (0.0, 1.0, [])


def test_a_reply_without_text_is_not_measured() -> None:
    scores, rounds = measure(answer(""), labels(), "answer_relevance", "faithfulness")
    assert ({score.not_applicable for score in scores.values()}, rounds) == ({"there is no reply"}, [])


# Citations


def cited(reply: str, labelled: dict[tuple[str, tuple[str, ...]], Judgement]) -> tuple[MetricScore, MetricScore, int]:
    def rule(call: Judge) -> Judgement:
        return labelled[call.slots["sentence"], call.documents]

    scores, rounds = measure(answer(reply, A, B, C), rule, "citation_recall", "citation_precision")
    return scores["citation_recall"], scores["citation_precision"], sum(map(len, rounds))


def test_a_citation_that_is_not_needed_lowers_precision() -> None:
    labelled: dict[tuple[str, tuple[str, ...]], Judgement] = {
        ("A is so.", (A,)): 3, ("B is so.", (A, B)): 3, ("B is so.", (B,)): 3, ("B is so.", (A,)): 2
    }  # fmt: skip
    recall, precision, calls = cited("A is so [1]. B is so [1][2].", labelled)
    assert (recall.value, precision.value, calls) == (1.0, pytest.approx(2 / 3), 4)


def test_a_sentence_without_citation_is_not_recalled() -> None:
    recall, precision, _ = cited("A is so [1]. B is so.", {("A is so.", (A,)): 3})
    assert (recall.value, precision.value) == (0.5, 1.0)


def test_a_citation_of_a_document_that_does_not_exist_backs_nothing() -> None:
    recall, precision, calls = cited("A is so [7].", {})
    assert (recall.value, precision.value, calls) == (0.0, 0.0, 0)


def test_a_reply_without_citations_has_no_precision() -> None:
    recall, precision, _ = cited("A is so.", {})
    assert (recall.value, precision.not_applicable) == (0.0, "the reply cites nothing")


def test_citations_behind_the_full_stop_belong_to_their_sentence() -> None:
    recall, precision, _ = cited("A is so. [1] B is so. [2, 3]", {
        ("A is so.", (A,)): 3, ("B is so.", (B, C)): 3, ("B is so.", (B,)): 2, ("B is so.", (C,)): 2,
    })  # fmt: skip
    assert (recall.value, precision.value) == (1.0, 1.0)  # only both together say it


@pytest.mark.parametrize("reply", ["As shown by Smith et al. [1] it is blue.", "See Fig. [1] for x."])
def test_a_citation_inside_a_sentence_splits_it_not(reply: str) -> None:
    recall, precision, calls = cited(reply, {(reply.replace(" [1]", ""), (A,)): 3})
    assert (recall.value, precision.value, calls) == (1.0, 1.0, 1)


@pytest.mark.parametrize(
    "text",
    [
        "-" * 100_000 + "x",
        "!" * 100_000,
        "\n" * 100_000,
        "1. a" + " " * 100_000 + "\nb",
        "[1]" * 30_000,
        "**" * 50_000,
        "# " * 50_000,
    ],
)
def test_a_reply_of_100_000_characters_is_split_without_delay(text: str) -> None:
    with limit_processor_time(20.0):
        given = answer(text, A)._replace(params=MetricsParams(unit="claims"))
        measure(given, lambda call: 3, "faithfulness", "citation_recall", text=text)


def test_a_missing_label_of_a_citation_widens_both() -> None:
    recall, precision, _ = cited("A is so [1]. B is so [2].", {("A is so.", (A,)): 3, ("B is so.", (B,)): "unparsed"})
    assert (recall.low, recall.high, precision.low, precision.high) == (0.5, 1.0, 0.5, 1.0)
    assert precision.failures == {"unparsed": 1}


# With a gold answer


def test_context_recall_is_the_share_of_the_gold_answer_that_the_documents_hold() -> None:
    given = answer("Yes.", A, gold="One is so. Two is so. Three is so.")
    assert one(given, labels(3, 2, 3), "context_recall").value == pytest.approx(2 / 3)
    assert one(answer("Yes.", A), labels(), "context_recall").not_applicable == (
        "the item has neither a gold answer nor nuggets"
    )
    assert measure(given._replace(context=()), labels(), "context_recall")[1] == []


def test_nuggets_take_the_place_of_the_sentences_of_the_gold_answer() -> None:
    nuggets = ("Who built it?", "It was built in 1911. It is white.", "It stands on a rock.")
    for gold in ("Sentence one. Sentence two. Sentence three. Sentence four.", None):
        item = Item(ordinal=0, question="Which?", gold=gold, expected=Expected(golds=("Another.",), nuggets=nuggets))
        given = answer("Yes.", A)._replace(item=item)
        scores, [asked] = measure(given, labels(3, 2, 3), "context_recall")
        assert scores["context_recall"].value == pytest.approx(2 / 3)
        assert [(part.text, part.label) for part in scores["context_recall"].parts] == list(
            zip(nuggets, (3, 2, 3), strict=True)
        )
        assert [call.slots for call in asked if isinstance(call, Judge)] == [{"sentence": each} for each in nuggets]
        unknown = one(given, labels(3, "unparsed", 2), "context_recall")
        assert (unknown.low, unknown.high) == (pytest.approx(1 / 3), pytest.approx(2 / 3))
        assert one(given._replace(context=()), labels(), "context_recall").value == 0.0


def test_claims_need_a_gold_answer_and_read_no_nuggets() -> None:
    item = Item(ordinal=0, question="Which?", expected=Expected(nuggets=("One is so.",)))
    scores, rounds = measure(answer("Yes.", A)._replace(item=item), labels(), "claims")
    assert (scores["claim_recall"].not_applicable, rounds) == ("the item has no gold answer", [])


def test_the_best_of_several_gold_answers_counts() -> None:
    item = Item(ordinal=0, question="Which?", gold="One is so. Two is so.", expected=Expected(golds=("Three is so.",)))
    given = answer("Yes.", A)._replace(item=item)
    assert one(given, labels(3, 2, 2), "context_recall").value == 0.5
    assert one(given, labels(3, 2, 3), "context_recall").value == 1.0
    unknown = one(given, labels(3, 2, "unparsed"), "context_recall")
    assert (unknown.value, unknown.low, unknown.high) == (None, 0.5, 1.0)


# The first two records of RAGChecker's examples/checking_outputs.json (Apache-2.0): for each claim whether it is
# entailed, and the figures that its authors computed.
PUBLISHED = [
    (
        ClaimTable(
            correct=[at not in (0, 9, 10) for at in range(11)],
            found=[at in (0, 1, 2, 3, 4, 5, 8, 9, 15, 20, 21) for at in range(22)],
            supports=[[(at, d) in {(0, 1), (6, 1), (8, 0), (8, 3), (9, 3)} for d in range(4)] for at in range(11)],
            holds=[
                [(at, d) in {(0, 1), (3, 0), (4, 0), (4, 1), (5, 0), (5, 3), (21, 1)} for d in range(4)]
                for at in range(22)
            ],
        ),
        (0.7273, 0.5, 0.5926, 0.1818, 0.0, 0.0909, 0.5455, 1.0),
    ),
    (
        ClaimTable(
            correct=[False, True, True, True, True],
            found=[True, True, False, True, False, True, True, True],
            supports=[
                [False, True, False], [False, True, True], [False, True, True], [True, False, True],
                [False, True, True],
            ],
            holds=[
                [False, True, False], [False, True, True], [False, True, False], [False, True, True],
                [False, False, True], [True, False, True], [True, True, True], [False, True, True],
            ],
        ),
        (0.8, 0.75, 0.7742, 0.2, 0.0, 0.0, 0.0, 0.75),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("table", "figures"), PUBLISHED)
def test_the_scores_of_claims_are_those_of_their_authors(table: ClaimTable, figures: tuple[float, ...]) -> None:
    scores = score_claims(table)
    assert tuple(round(scores[name].value or 0.0, 4) for name in CLAIM_SCORES) == figures


def test_the_shares_of_claims_add_up() -> None:
    drawn = random.Random(7)  # noqa: S311 - repeatable
    for _ in range(1000):
        u, k, d = drawn.randint(1, 6), drawn.randint(1, 6), drawn.randint(0, 4)
        table = ClaimTable(
            [drawn.random() < 0.5 for _ in range(u)],
            [drawn.random() < 0.5 for _ in range(k)],
            [[drawn.random() < 0.3 for _ in range(d)] for _ in range(u)],
            [[drawn.random() < 0.3 for _ in range(d)] for _ in range(k)],
        )
        score = {name: found.value for name, found in score_claims(table).items()}
        wrong = (score["noise_relevant"], score["noise_irrelevant"], score["hallucination"])
        assert sum(map(value, (score["claim_precision"], *wrong))) == pytest.approx(1)
        supported = sum(any(row) for row in table.supports) / u
        assert supported + value(score["self_knowledge"]) + value(score["hallucination"]) == pytest.approx(1)


def value(found: float | None) -> float:
    assert found is not None
    return found


def test_the_bounds_of_claims_hold_for_each_completion_of_what_is_missing() -> None:
    table = ClaimTable([True, None], [None, False], [[True, None], [None, False]], [[None, False], [True, False]])
    bounds = score_claims(table, {"unparsed": 5})
    for given in itertools.product((True, False), repeat=5):
        rest: Iterator[bool] = iter(given)

        def fill(cells: list[bool | None], rest: Iterator[bool] = rest) -> list[bool | None]:
            return [next(rest) if cell is None else cell for cell in cells]

        whole = ClaimTable(
            fill([*table.correct]),
            fill([*table.found]),
            [fill([*row]) for row in table.supports],
            [fill([*row]) for row in table.holds],
        )
        for name, score in score_claims(whole).items():
            low, high = bounds[name].low, bounds[name].high
            if score.value is not None and bounds[name].value is None:
                assert value(low) <= score.value <= value(high), name


def test_claims_ask_for_each_sentence_and_document() -> None:
    given = answer("One is so. Two is so.", A, B, gold="So is one.")

    def rule(call: Judge) -> int:
        return 3 if "documents" in call.slots and call.slots["sentence"] != "Two is so." else 2

    scores, rounds = measure(given, rule, "claims")
    assert [len(asked) for asked in rounds] == [2 + 1 + 3 * 2]
    assert (scores["self_knowledge"].value, scores["hallucination"].value) == (0.5, 0.5)
    assert scores["utilisation"].not_applicable == "the documents support nothing of the gold answer"


# All metrics


def test_metrics_that_ask_the_same_ask_it_once() -> None:
    given = answer("One is so.", A, gold="One is so.")
    scores, rounds = measure(given, lambda call: 3, *METRICS)
    asked = [str(call) for round_ in rounds for call in round_]
    assert len(asked) == len(set(asked))
    assert set(scores) == {score for metric in METRICS.values() for score in metric.scores}


def test_bounds_hold_for_each_completion_of_missing_labels() -> None:
    names = [name for name in METRICS if not name.startswith(("citation", "claims"))]
    given = answer("One is so. Two is so.", A, B, gold="One is so. Two is so.")
    drawn = random.Random(3)  # noqa: S311 - repeatable
    for _ in range(200):
        missing = drawn.random()
        seen: dict[str, Judgement] = {}

        def rule(call: Judge, seen: dict[str, Judgement] = seen, missing: float = missing) -> Judgement:
            # Not DECLINED: then faithfulness has no value, and so no bounds.
            best = {"addresses": 4, "relevance": 5}.get(call.rubric, 3)
            return seen.setdefault(str(call), "unparsed" if drawn.random() < missing else drawn.randint(2, best))

        partial, _ = measure(given, rule, *names)
        for _ in range(5):
            whole, _ = measure(
                given,
                lambda call, seen=seen: label if isinstance(label := seen[str(call)], int) else drawn.randint(2, 3),  # type: ignore[misc]
                *names,
            )
            for name, score in partial.items():
                if score.value is None:
                    assert value(score.low) <= value(whole[name].value) <= value(score.high), name
                else:
                    assert score.value == whole[name].value


# Controls


DOCUMENT = Document(text="Ada left. She went to Paris on the first train.")
CONTROL = Control(question="What else?", documents=(C, "d" * 64))


def controlled(rule: Rule, *names: str, context: tuple[str, ...] = (DOCUMENT.hash, B)) -> dict[str, ControlScore]:
    given = answer("One is so. Two is so.", *context)._replace(
        params=MetricsParams(names=names), library={DOCUMENT.hash: DOCUMENT, B: Document(text="Other.")}
    )
    steps = measure_answer(given, CONTROL)
    replies = None
    while True:
        try:
            asked = list(steps.send(replies))  # type: ignore[arg-type]
        except StopIteration as stop:
            return stop.value.controls  # type: ignore[no-any-return]
        replies = [reply_to(rule(call)) for call in asked]  # type: ignore[arg-type]


def test_a_judge_that_reads_passes_the_controls() -> None:
    def reads(call: Judge) -> int:
        if call.rubric == "support":
            return 3 if {*call.documents} & {DOCUMENT.hash, B} else 2
        best = {"addresses": 4, "relevance": 5}.get(call.rubric, 3)
        return best if call.question == "Which?" else 1

    found = controlled(reads, "faithfulness", "context_relevance", "context_sufficiency", "answer_relevance")
    assert found == {
        "faithfulness": ControlScore(swapped=0.0, copied=1.0, reversed=1.0),
        "context_relevance": ControlScore(swapped=0.0),
        "context_sufficiency": ControlScore(swapped=0.0, reversed=1.0),
        "answer_relevance": ControlScore(swapped=0.0),
    }


def test_a_judge_that_always_says_the_same_does_not() -> None:
    found = controlled(lambda call: 3, "faithfulness", "context_sufficiency")
    assert [each.swapped for each in found.values()] == [1.0, 1.0]


def test_a_judge_that_heeds_the_order_of_documents_does_not() -> None:
    def heeds(call: Judge) -> int:
        return 3 if call.documents[:1] == (DOCUMENT.hash,) or call.rubric == "addresses" else 2

    assert controlled(heeds, "faithfulness")["faithfulness"].reversed == 0.0


def test_a_control_whose_labels_are_missing_has_no_value() -> None:
    found = controlled(lambda call: "unparsed", "faithfulness", "answer_relevance")
    assert found == {"faithfulness": ControlScore(), "answer_relevance": ControlScore()}


def test_documents_of_the_sample_itself_are_not_swapped_in() -> None:
    asked: list[Judge] = []

    def rule(call: Judge) -> int:
        asked.append(call)
        return 3

    controlled(rule, "faithfulness", context=(DOCUMENT.hash, C))
    assert {call.documents for call in asked if call.rubric == "support"} == {
        (DOCUMENT.hash, C), (C, DOCUMENT.hash), ("d" * 64,), (DOCUMENT.hash,)
    }  # fmt: skip


def test_an_unknown_metric_names_those_that_exist() -> None:
    with pytest.raises(
        LookupError, match=r"no metric 'faithfullness'; the metrics are faithfulness, context_relevance"
    ):
        get_metric("faithfullness")


def test_two_metrics_cannot_give_the_same_score() -> None:
    with pytest.raises(ValueError, match="another metric already gives the score 'declined'"):
        adopt(Metric("refusals", METRICS["faithfulness"].measure, ("declined",)))


@pytest.mark.parametrize("scores", [(), ("accuracy",), ("Upper",), ("a b",)])
def test_a_score_that_could_not_be_named_is_refused(scores: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"it has no scores|a score cannot be called"):
        adopt(Metric("own", METRICS["faithfulness"].measure, scores))


def test_a_metric_without_a_value_says_why() -> None:
    with pytest.raises(ValueError, match="must say why it does not apply"):
        MetricScore()
    with pytest.raises(ValueError, match="must be from 0 to 1"):
        MetricScore(value=1.5)
    with pytest.raises(ValueError, match="the bounds of a metric must be from 0 to 1"):
        MetricScore(failures={"unparsed": 1}, low=0.8, high=0.2)
    with pytest.raises(ValueError, match="a value, or a reason"):
        MetricScore(value=0.5, failures={"unparsed": 1})
