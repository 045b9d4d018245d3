"""HyDE: hypothetical documents are written, searched with, and thrown away."""

from collections.abc import Callable
from typing import Any

import pytest

from shared.calls import MAX_QUESTION, Call, Decoding, Generate, Lane, Retrieve, Write
from shared.params import HydeParams, Params
from shared.pipelines import registry
from shared.pipelines.binding import Binding, Pin, bind
from shared.rag.rewriting import draft_hypotheses, read_hypotheses
from shared.replies import CallFailed, Failure, FailureKind, Generated, Reply
from shared.samples import Decision, Item, Outcome, Sample
from tests.unit.shared.pipelines.test_pipelines import A, B, drive, found

QUESTION = "What is x?"
REFUSED = Failure(kind=FailureKind.REFUSED, detail="the model gave an empty text")


def run(
    write: Callable[[Write], Reply], params: Params | None = None, name: str = "hyde"
) -> tuple[Outcome, list[list[Call]]]:
    def answer(call: Call) -> Reply:
        match call:
            case Write():
                return write(call)
            case Retrieve():
                return found(A, B)
            case _:
                return Generated(text=r"So \boxed{14}.")

    sample = Sample(item=Item(ordinal=0, question=QUESTION))
    result: tuple[Any, list[list[Call]]] = drive(registry.get(name).run(sample, params or Params(), {}), answer)
    return result


def numbered(call: Write) -> Reply:
    return Generated(text=f"Step {call.draw}: x.")


def retrieval(asked: list[list[Call]]) -> Retrieve:
    [search] = [call for step in asked for call in step if isinstance(call, Retrieve)]
    return search


def test_eight_solutions_are_drawn_from_one_prompt_by_default() -> None:
    _, asked = run(numbered)
    decoding = Decoding(temperature=0.7, max_tokens=512)
    slots = {"question": QUESTION}
    assert asked[0] == [Write(template="hyde-solution", decoding=decoding, slots=slots, draw=n) for n in range(8)]


def test_the_search_is_made_with_all_texts_in_the_order_of_their_draws() -> None:
    _, asked = run(numbered, Params(hyde=HydeParams(documents=3), candidates=7))
    hypothetical = ("Step 0: x.", "Step 1: x.", "Step 2: x.")
    assert asked[1] == [Retrieve(question=QUESTION, index="dense", k=7, hypothetical=hypothetical)]


def test_a_passage_is_written_where_the_style_asks_for_one() -> None:
    assert {call.template for call in draft_hypotheses("q", HydeParams(style="passage"))} == {"hyde-passage"}


def test_a_chinese_question_is_answered_in_chinese() -> None:
    assert {call.template for call in draft_hypotheses("求 $x$ 的值是多少？", HydeParams())} == {"hyde-solution-zh"}


def test_without_hypothetical_documents_it_asks_what_dense_asks() -> None:
    none = Params(hyde=HydeParams(documents=0))
    outcome, asked = run(numbered, none)
    plain, baseline = run(numbered, none, name="dense")
    assert asked == baseline
    assert outcome == plain


def test_what_was_made_up_is_never_context() -> None:
    outcome, asked = run(numbered, Params(context_size=5))
    assert asked[-1] == [Generate(template="cot", question=QUESTION, context=(A, B))]
    assert outcome.context == (A, B)


def test_texts_that_were_not_written_are_left_out_and_counted() -> None:
    replies = {0: REFUSED, 1: Generated(text=" \n "), 2: Generated(text="x is 2"), 3: Generated(text="[[3]]")}
    outcome, asked = run(lambda call: replies[call.draw], Params(hyde=HydeParams(documents=4)))
    assert retrieval(asked).hypothetical == ("x is 2",)
    detail: dict[str, Any] = {"texts": 1, "failed": ["refused", "unparsed", "unparsed"]}
    assert outcome.trace.decisions == (Decision(stage="hyde", action="mean", detail=detail),)


def test_where_every_text_failed_the_question_is_searched_with_alone() -> None:
    lost = Failure(kind=FailureKind.CONNECTION)
    outcome, asked = run(lambda _: lost, Params(hyde=HydeParams(documents=2)))
    assert retrieval(asked) == Retrieve(question=QUESTION, index="dense", k=10)
    [decision] = outcome.trace.decisions
    assert (decision.action, decision.fallback) == ("plain", "connection")
    assert decision.detail == {"texts": 0, "failed": ["connection", "connection"]}
    assert outcome.answer == "14"


@pytest.mark.parametrize(
    ("written", "searched"),
    [
        ("First.\n\n\nQuestion: another one", "First."),
        ("\n\n\nFirst.\n\nSecond.", "First.\n\nSecond."),
        ("First.", "First."),
    ],
)
def test_a_text_ends_where_the_authors_stop(written: str, searched: str) -> None:
    assert read_hypotheses("What comes first?", [Generated(text=written)]).texts == (searched,)


@pytest.mark.parametrize(
    ("question", "written", "searched"),
    [
        ("求圆的面积", "The area of a circle is pi r squared.", "The area of a circle is pi r squared."),
        ("What is the area of a circle?", "圆的面积等于π乘以半径的平方。", "圆的面积等于π乘以半径的平方。"),
        ("What is x?", "<think>Hm, 3?</think>\n\nSo x = 2.", "So x = 2."),
        ("What is x?", "Sure! Here is a worked solution:\n\nStep 1. x = 2.", "Step 1. x = 2."),
        ("What is x?", "当然，以下是解答：\nx = 2，因为它是根。", "x = 2，因为它是根。"),
        ("What is x?", "We have two equations:\nx = 2", "We have two equations:\nx = 2"),
        ("What is x?", "This is one of the questions on roots.", "This is one of the questions on roots."),
    ],
)
def test_a_text_in_any_language_is_searched_with_without_thoughts_and_introductions(
    question: str, written: str, searched: str
) -> None:
    assert read_hypotheses(question, [Generated(text=written)]).texts == (searched,)


@pytest.mark.parametrize(
    "written",
    [
        "I am a language model and cannot solve for x.", "I'm sorry, but x is not given.", "很抱歉，我无法求出x。",
        "14", "Sure!\nI cannot find x.", "<think>So x = 2", "<think>x</think>", "Here is a solution:",
        "[[2]]", "[[2]] as an AI",
    ],
)  # fmt: skip
def test_a_refusal_is_no_hypothetical_document(written: str) -> None:
    found = read_hypotheses("What is x in x = 2?", [Generated(text=written)])
    assert (found.texts, found.failures) == ((), (FailureKind.UNPARSED,))


def test_a_truncated_text_is_searched_with() -> None:
    assert read_hypotheses("Since when?", [Generated(text="Step 1. Since", truncated=True)]).texts == ("Step 1. Since",)


def test_a_text_that_would_flood_the_retriever_is_cut() -> None:
    [text] = read_hypotheses("x?", [Generated(text="x " * MAX_QUESTION)]).texts
    assert len(text) == MAX_QUESTION


def test_a_failed_search_ends_the_sample() -> None:
    steps = registry.get("hyde").run(Sample(item=Item(ordinal=0, question=QUESTION)), Params(), {})
    with pytest.raises(CallFailed, match="timeout"):
        drive(steps, lambda call: numbered(call) if isinstance(call, Write) else Failure(kind=FailureKind.TIMEOUT))


def test_hypothetical_documents_are_written_in_the_judges_lane() -> None:
    pins = {"judge": Pin(model_id=1, hash="aa")}
    bound = [bind(call, Binding(pins=pins, params=Params()), 0) for call in draft_hypotheses(QUESTION, HydeParams())]
    assert {call.lane for call in bound} == {Lane.JUDGE}
    assert len({call.key for call in bound}) == 8
