"""What becomes of every pipeline's outcome: where its answer was found, and in which outcomes that is said."""

import msgspec
import pytest

from shared import canonical
from shared.calls import Duplicates, Generate, Retrieve
from shared.params import GradingParams, Params
from shared.pipelines.grading import run_and_grade
from shared.rag.provenance import make_outcome, make_single_trace
from shared.replies import Document, Generated, Hit, Marked, Reply, Retrieved
from shared.runtime.advance import Replay
from shared.samples import Item, Library, Outcome, Steps

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
    replay = Replay(run_and_grade(steps, item, LIBRARY, grading))
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


@pytest.mark.parametrize(
    ("item", "grading"),
    [(ITEM, GradingParams()), (Item(ordinal=0, question="?"), TEXT)],
)
def test_outcomes_without_answers_to_look_for_keep_their_bytes(item: Item, grading: GradingParams) -> None:
    assert b"answer_rank" not in canonical.encode(outcome(searching(), hits(*DOCUMENTS), item=item, grading=grading))


@pytest.mark.parametrize(
    ("shown", "rule", "named"),
    [
        (True, "same-answer", True),
        (True, "off", True),
        (False, "same-answer", False),
        (True, "same-words", False),
    ],
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

    replay = Replay(run_and_grade(steps(), ITEM, {**LIBRARY, repeating.hash: repeating}, TEXT, rule))
    for reply in (hits(repeating), Generated(text="Answer: Obama"), Marked(correct=False)):
        replay.answer([reply])
    assert replay.result is not None, replay.failure
    noted = [each.detail["document"] for each in replay.result.trace.decisions if each.stage == "duplicates"]
    assert noted == ([repeating.hash] if named else [])


def test_a_document_that_is_gone_fails_the_sample() -> None:
    gone: Library = {}
    replay = Replay(run_and_grade(searching(), ITEM, gone, TEXT))
    replay.answer([hits(*DOCUMENTS)])
    replay.answer([Generated(text="Answer: Obama")])
    assert replay.failure is not None
    assert replay.failure[0] == "pipeline_error"
