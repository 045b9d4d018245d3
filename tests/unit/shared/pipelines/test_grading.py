"""What becomes of every pipeline's outcome: where its answer was found, and what a judge says of it."""

from collections.abc import Generator, Sequence
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from shared import canonical
from shared.calls import Duplicates, Expected, Generate, Grade, Judge, Request, Retrieve
from shared.params import GradingParams, MetricsParams, Params
from shared.pipelines.binding import Binding, Pin, bind
from shared.pipelines.grading import run_and_grade
from shared.rag.answer_metrics import METRICS, MeasuredAnswer, Metric
from shared.rag.prompts import parse_grade
from shared.rag.provenance import make_outcome, make_single_trace
from shared.replies import Document, Failure, FailureKind, Generated, Hit, Marked, Rated, Reply, Retrieved
from shared.runtime.advance import Replay
from shared.samples import Item, Library, MetricScore, Outcome, Steps, Yielded

# What becomes of every pipeline's outcome: where its answer was found, and in which outcomes that is said.

ITEM = Item(ordinal=0, question="Who visits Kenya?", gold="Barack Obama")
DOCUMENTS = [Document(text="Kenya host a summit."), Document(text="Barack Obama visit Kenya.")]
LIBRARY = {document.hash: document for document in DOCUMENTS}
TEXT = GradingParams(grader="text")


def searching() -> Steps:
    found = yield Retrieve(index="dense", question=ITEM.question, k=2)
    generated = yield Generate(template="cot", question=ITEM.question)
    return make_outcome(generated, trace=make_single_trace(found, "dense", Params()))


def closed_book() -> Steps:
    return make_outcome((yield Generate(template="cot", question=ITEM.question)))


def outcome(steps: Steps, *replies: Reply, item: Item = ITEM, grading: GradingParams = TEXT) -> Outcome:
    replay = Replay(run_and_grade(steps, item, LIBRARY, Params(grading=grading)))
    for reply in (*replies, Generated(text="Answer: Obama"), Marked(correct=False)):
        if replay.calls:
            replay.answer([reply])
    assert replay.result is not None, replay.failure
    return replay.result


def hits(*documents: Document) -> Retrieved:
    return Retrieved(hits=tuple(Hit(document=each.hash, rank=n, score=1 / n) for n, each in enumerate(documents, 1)))


def test_an_outcome_says_at_which_rank_an_answer_occurs() -> None:
    assert outcome(searching(), hits(*DOCUMENTS)).answer_rank == 2
    assert outcome(searching(), hits(*DOCUMENTS[::-1])).answer_rank == 1
    assert outcome(searching(), hits(DOCUMENTS[0])).answer_rank is None


def test_a_search_that_finds_nothing_has_missed_the_answer() -> None:
    assert outcome(searching(), hits()).answer_rank is None


def test_a_sample_that_searches_nothing_has_missed_nothing() -> None:
    assert outcome(closed_book()).answer_rank is msgspec.UNSET


@pytest.mark.parametrize(("item", "grading"), [(ITEM, GradingParams()), (Item(ordinal=0, question="?"), TEXT)])
def test_outcomes_without_answers_to_look_for_keep_their_bytes(item: Item, grading: GradingParams) -> None:
    assert b"answer_rank" not in canonical.encode(outcome(searching(), hits(*DOCUMENTS), item=item, grading=grading))


@pytest.mark.parametrize(
    ("shown", "rule", "named"),
    [(True, "same-answer", True), (True, "off", True), (False, "same-answer", False), (True, "same-words", False)],
)
def test_an_outcome_names_a_document_of_its_prompt_that_repeats_the_question(
    *, shown: bool, rule: Duplicates, named: bool
) -> None:
    repeating = Document(text="Who visits Kenya? Barack Obama does.")

    def steps() -> Steps:
        found = yield Retrieve(index="dense", question=ITEM.question, k=2)
        generated = yield Generate(template="cot", question=ITEM.question)
        context = (repeating.hash,) if shown else ()
        return make_outcome(generated, context=context, trace=make_single_trace(found, "dense", Params()))

    params = Params(grading=TEXT, duplicates=rule)
    replay = Replay(run_and_grade(steps(), ITEM, {**LIBRARY, repeating.hash: repeating}, params))
    for reply in (hits(repeating), Generated(text="Answer: Obama"), Marked(correct=False)):
        replay.answer([reply])
    assert replay.result is not None, replay.failure
    noted = [each.detail["document"] for each in replay.result.trace.decisions if each.stage == "duplicates"]
    assert noted == ([repeating.hash] if named else [])


def test_a_document_that_is_gone_fails_the_sample() -> None:
    gone: Library = {}
    replay = Replay(run_and_grade(searching(), ITEM, gone, Params(grading=TEXT)))
    replay.answer([hits(*DOCUMENTS)])
    replay.answer([Generated(text="Answer: Obama")])
    assert replay.failure is not None
    assert replay.failure[0] == "pipeline_error"


# The judge model as a grader: what it is asked, how its rating is read, and what becomes of the sample.

RUBRIC = GradingParams(grader="rubric", rubric="Names the capital.")
CAPITAL = Item(ordinal=0, question="What is the capital?", gold="Paris", expected=Expected(golds=("Lutetia",)))


def pipeline() -> Generator[Yielded, Any, Outcome]:
    generated = yield Generate(template="cot", question=CAPITAL.question)
    return make_outcome(generated)


def asked(
    item: Item = CAPITAL, grading: GradingParams = RUBRIC, text: str = "The capital is Paris."
) -> Replay[Outcome]:
    replay = Replay(run_and_grade(pipeline(), item, {}, Params(grading=grading)))
    replay.answer([Generated(text=text)])
    return replay


def test_the_judge_model_sees_question_references_answer_and_rubric() -> None:
    [call] = asked().calls
    assert isinstance(call, Judge)
    assert call.question == CAPITAL.question
    assert call.slots == {
        "answer": "The capital is Paris.",
        "reference": "Reference answer: Paris or Lutetia\n",
        "rubric": "Names the capital.",
    }
    binding = Binding(pins={"judge": Pin(model_id=1, hash="0" * 64)}, params=Params(grading=RUBRIC))
    assert bind(call, binding, 0).role == "judge"


def test_an_items_own_rubric_goes_before_the_jobs_and_no_gold_answer_is_needed() -> None:
    [call] = asked(Item(ordinal=0, question="Why?", expected=Expected(rubric="Gives a reason."))).calls
    assert isinstance(call, Judge)
    assert (call.slots["rubric"], call.slots["reference"]) == ("Gives a reason.", "")


@pytest.mark.parametrize(("rating", "correct"), [(3, False), (4, True), (5, True)])
def test_a_reply_is_right_from_the_rating_on_that_the_job_says(rating: int, correct: bool) -> None:
    replay = asked()
    replay.answer([Rated(rating=rating, text="")])
    assert replay.result is not None
    assert replay.result.verdict == Marked(correct=correct, score=float(rating))
    assert type(replay.result) is Outcome


def test_a_reply_of_the_judge_without_a_rating_is_a_failure_and_no_score() -> None:
    replay = asked()
    replay.answer([Failure(kind=FailureKind.UNPARSED, detail="no rating")])
    assert replay.result is not None
    assert (replay.result.verdict, replay.result.grading_failure) == (None, "unparsed")


def test_words_are_graded_by_the_answer_that_their_grader_finds() -> None:
    replay = asked(grading=GradingParams(grader="text"), text="I think so.\nAnswer: **Paris**")
    assert replay.calls == (Grade(answer="Paris", gold="Paris", expected=CAPITAL.expected),)


def test_a_call_that_grades_mathematics_is_what_it_always_was() -> None:
    def key(name: Any, **fields: Any) -> Any:
        params = Params(grading=GradingParams(grader=name, threshold=0.7))
        binding = Binding(pins={"grade": Pin(model_id=1, hash="0" * 64)}, params=params)
        return bind(Grade(answer="5", gold="5", **fields), binding, 0).key

    plain = Request(role="grade", model="0" * 64, values={"answer": "5", "gold": "5"}).key
    assert key("") == key("math") == plain
    assert len({plain, key("text"), key("f1"), key("", expected=Expected(golds=("6",)))}) == 4
    assert key("rubric") == key("text")


@pytest.mark.parametrize(
    ("text", "rating"),
    [
        ("[[4]]", 4),
        ('{"reason": "it names 2 of 3", "rating": 4}', 4),
        ('```json\n{"rating": "5", "reason": "fine"}\n```', 5),
        ("Rating: 3. It is short.", 3),
        ("The score is 2", 2),
        ("评分：5", 5),
        ("4", 4),
        ("4/5", 4),
        ("4.0", 4),
        (" 4 out of 5.", 4),
        ("[[ 4 ]]", 4),
        ("[[４]]", 4),
        ("[[4.0]]", 4),
        ("**Rating:** 4", 4),
        ("**Rating**: **4/5**", 4),
        ("### Rating\n\n4", 4),
        ("Score - 4. It is short.", 4),
        ("Rating (1-5): 4", 4),
        ("Score (out of 5): 4", 4),
        ("Rating: 4 (on a scale of 1 to 5)", 4),
        ("Rating: 4\n- It names 2 of 3.", 4),
        ("The rating would be 4 of 5", 4),
        ('{"reason": "a rating of 3 would be too low", "rating": 4}', 4),
        ("{“rating”: “4”}", 4),
        ('{"rating": "4/5"}', 4),
        ("打分: 4", 4),
        ("打分：４分", 4),
        ("得分为4分（满分5分）", 4),
        ("评分是 4/5", 4),
        ("我的rating是4", 4),
        ("4分", 4),
        ("<think>It is a 3. Rating: 3</think>\nRating: 4", 4),
        ("<think>4/10?</think> 5", 5),
    ],
)
def test_a_rating_is_read_in_every_form_that_models_give_it(text: str, rating: int) -> None:
    assert parse_grade(text, truncated=False) == Rated(rating=rating, text=text)


@pytest.mark.parametrize(
    "text",
    [
        "", "good", "rating: 7", "0", "4.5", '{"rating": 3} {"rating": 4}', "[[4]] or [[5]]", "2 reasons", "-4",
        "Rating: 4,5", "Rating: 4.5/5", "Rating: -4", "Rating: 3. Final rating: 4", "Rating: about the same as 4",
        "<think>Rating: 4", "<think>4</think>",
    ],
)  # fmt: skip
def test_what_is_no_single_rating_is_a_failure(text: str) -> None:
    reply = parse_grade(text, truncated=False)
    assert isinstance(reply, Failure)
    assert reply.kind is FailureKind.UNPARSED


@pytest.mark.parametrize(
    "text",
    [
        "Rating: 4/10", "4/10", "Rating: 8 out of 10", "Rating: 4 out of 10", "Rating: 4 out of a possible 10",
        "Rating: 4%", "Rating: 80%", "4%", '{"rating": "4/10"}', '{"rating": 80%}', "Rating: **4**/10", "4 / 100",
        "Rating (out of 10): 4", "Score (0-10): 4", "Rating: 4 on a scale of 1 to 10", "4 stars out of 10",
        "Rating: 4 points out of 10", "评分：4/10", "打分：4分（满分10分）", "评分：4%", "得分：4／10",
    ],
)  # fmt: skip
def test_a_rating_on_another_scale_is_not_converted(text: str) -> None:
    assert isinstance(parse_grade(text, truncated=False), Failure)


@pytest.mark.parametrize(
    "text",
    [
        "Rating: 3-4", "3-4", "Rating: 3 to 4", "between 3 and 4", "Rating: between 3 and 4", "Rating: 3–4",
        "Rating: 3 - 4", "Rating: 4 or 5", '{"rating": "3-4"}', "评分：3～4", "评分：3到4", "打分：3至4分",
        "评分：3或4", "**Rating:** **3**-**4**",
    ],
)  # fmt: skip
def test_a_range_is_no_rating(text: str) -> None:
    assert isinstance(parse_grade(text, truncated=False), Failure)


@pytest.mark.parametrize(
    "text", ["Rating: 4", "4", "Rating: 4.", "Rating: 4 out of", "Rating: 4/1", '{"rating": 4', "评分：4"]
)
def test_a_number_that_the_token_limit_may_have_cut_is_no_rating(text: str) -> None:
    cut = parse_grade(text, truncated=True)
    assert isinstance(cut, Failure)
    assert cut.kind is FailureKind.TRUNCATED
    assert isinstance(parse_grade("Rating: 4. It is sh", truncated=True), Rated)


@pytest.mark.parametrize(
    "text",
    [
        *(
            piece * 200_000
            for piece in ("rating ", "rating (", "rating: (9 ", "[[", "4 ", "评分", '"rating": ', "4 / ")
        ),
        *(first + " " * 200_000 + "x" for first in ("4", "rating", "[[4", '"rating"')),
    ],
    ids=lambda text: f"{text[:18].strip()} ...",
)
def test_a_long_reply_is_read_in_linear_time(text: str) -> None:
    assert isinstance(parse_grade(text, truncated=False), Failure)


def test_a_reply_that_ended_before_its_rating_is_truncated() -> None:
    cut = parse_grade('{"reason": "it names', truncated=True)
    assert isinstance(cut, Failure)
    assert cut.kind is FailureKind.TRUNCATED
    assert isinstance(parse_grade('{"rating": 4, "reason": "it na', truncated=True), Rated)


# Metrics: what they are given, and where their scores are kept.


def measured(steps: Steps, names: tuple[str, ...], *given: Sequence[Reply], item: Item = ITEM) -> Replay[Outcome]:
    params = Params(grading=TEXT, metrics=MetricsParams(names=names))
    replay = Replay(run_and_grade(steps, item, LIBRARY, params))
    for replies in given:
        replay.answer(replies)
    return replay


UNGRADED = Item(ordinal=0, question="Who visits Kenya?")
LABEL = Rated(rating=3, text="[[3]]")


def test_metrics_are_asked_after_the_grade_and_kept_in_the_outcome() -> None:
    def steps() -> Steps:
        found = yield Retrieve(index="dense", question=ITEM.question, k=2)
        documents = (DOCUMENTS[1].hash,)
        generated = yield Generate(template="cot", question=ITEM.question, context=documents)
        return make_outcome(generated, documents, make_single_trace(found, "dense", Params()))

    text = Generated(text="<think>Perhaps. Who?</think>Obama does. He came in 2015.")
    replay = measured(steps(), ("faithfulness",), [hits(*DOCUMENTS)], [text], [Marked(correct=True)])
    asked = [call for call in replay.calls if isinstance(call, Judge)]
    assert [call.rubric for call in asked] == ["addresses", "support", "support"]
    assert asked[0].slots == {"reply": "Obama does. He came in 2015."}  # without what the model thought
    assert {call.documents for call in asked[1:]} == {(DOCUMENTS[1].hash,)}
    replay.answer([LABEL, LABEL, Failure(kind=FailureKind.UNPARSED, detail="no label")])
    assert replay.result is not None, replay.failure
    assert replay.result.verdict == Marked(correct=True)
    score = replay.result.metrics["faithfulness"]  # type: ignore[index]
    assert (score.value, score.low, score.high, score.failures) == (None, 0.5, 1.0, {"unparsed": 1})


def test_an_answer_that_was_written_from_a_passage_is_measured_against_it() -> None:
    def steps() -> Steps:
        found = yield Retrieve(index="dense", question=ITEM.question, k=2)
        prompt = Generate(template="cot", question=ITEM.question, context=(DOCUMENTS[0].hash,), passage="Kenya hosts.")
        _, second = yield [prompt, replace(prompt, draw=1, passage="Kenya is hot.")]
        return make_outcome(second, (DOCUMENTS[0].hash,), make_single_trace(found, "dense", Params()))

    texts = [Generated(text="It hosts."), Generated(text="It is hot.")]
    replay = measured(steps(), ("context_sufficiency",), [hits(*DOCUMENTS)], texts, item=UNGRADED)
    assert [call.slots for call in replay.calls if isinstance(call, Judge)] == [{"documents": "Kenya is hot.\n\n"}]


def test_a_judge_that_is_away_ends_the_sample() -> None:
    replay = measured(closed_book(), ("answer_relevance",), [Generated(text="It is.")], item=UNGRADED)
    replay.answer([Failure(kind=FailureKind.UNAVAILABLE, detail="away")])
    assert replay.failure == ("unavailable", "away")


def test_without_metrics_outcomes_keep_their_bytes() -> None:
    assert b"metrics" not in canonical.encode(outcome(closed_book()))


@pytest.mark.parametrize("returned", [{}, {"strange": 1.0}, {"other": MetricScore(value=1.0)}, None])
def test_a_metric_that_returns_something_else_ends_the_sample_with_its_name(
    returned: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(_answer: MeasuredAnswer) -> Generator[Any, Any, Any]:
        return returned
        yield []

    monkeypatch.setitem(METRICS, "strange", Metric("strange", measure, ("strange",)))
    replay = measured(closed_book(), ("strange",), [Generated(text="It is.")], item=UNGRADED)
    assert replay.failure is not None
    assert "metric 'strange' has to return" in replay.failure[1]
