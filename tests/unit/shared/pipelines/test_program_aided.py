"""program-aided: a program's output is the answer; whatever keeps it from one, the question is asked as in `hybrid`."""

from collections.abc import Callable

import pytest

from shared.calls import Call, Execute, Generate, Retrieve
from shared.params import Params
from shared.pipelines.binding import Binding, SampleBinder
from shared.replies import CallFailed, Executed, Failure, FailureKind, Generated, Reply
from shared.runtime.price import dry_run, list_drawn_roles, make_placeholder_job
from shared.samples import Decision, Extraction, Item, Outcome
from shared.storage.provenance import find_answering_text, find_extractor
from tests.unit.shared.pipelines.test_binding import PINS
from tests.unit.shared.pipelines.test_pipelines import C, run, world

PROGRAM = "answer = sum(k**2 for k in range(1, 21))\n"
BLOCK = f"```python\n{PROGRAM}```"
ANSWER = f"{BLOCK}\n\nThe answer is \\boxed{{2870}}."
PROMPT = Generate(template="program", question="What is x?", context=(C,))
PLAIN = Generate(template="cot", question="What is x?", context=(C,))
RUN = Decision(stage="program", action="run", detail={"text": ANSWER, "output": "2870"})
OUTPUT = Executed(output="2870")
TIMEOUT = Failure(kind=FailureKind.PROGRAM_TIMEOUT, detail="it did not end within 10 s of processor time")


def writing(written: str | Failure, executed: Reply = OUTPUT) -> Callable[[Call], Reply]:
    def answer(call: Call) -> Reply:
        match call:
            case Generate(template="program"):
                return written if isinstance(written, Failure) else Generated(text=written)
            case Execute():
                return executed
            case _:
                return world(call)

    return answer


def compute(written: str | Failure, executed: Reply = OUTPUT) -> tuple[Outcome, list[list[Call]]]:
    return run("program-aided", writing(written, executed))


def test_the_output_of_the_program_is_the_answer() -> None:
    outcome, asked = compute(f"So:\n\n{BLOCK}\nThis prints 1.")
    assert [type(call) for call in asked[0]] == [Retrieve, Retrieve]
    assert asked[1:] == [[PROMPT], [Execute(program=PROGRAM)]]
    assert (outcome.answer, outcome.extraction, outcome.context) == ("2870", Extraction.OK, (C,))
    assert outcome.trace.decisions == (RUN,)
    assert outcome.truncated is False


def test_the_text_of_the_answer_is_the_program_with_its_output() -> None:
    outcome, _ = compute(BLOCK)
    assert find_answering_text([BLOCK], outcome, find_extractor(Params())) == ANSWER


def test_the_documents_are_those_of_hybrid() -> None:
    computed, plain = compute(BLOCK)[0], run("hybrid")[0]
    assert (computed.context, computed.trace.candidates) == (plain.context, plain.trace.candidates)


@pytest.mark.parametrize(
    ("text", "program"),
    [
        ("```\nanswer = 1\n```", "answer = 1\n"),
        ("```Python\nanswer = 1\n```", "answer = 1\n"),
        ("1. So:\n\n   ```py\n   if 1:\n       answer = 1\n   ```", "if 1:\n    answer = 1\n"),
        ("```python\nanswer = 1\n```\nor\n```python\nanswer = 2\n```", "answer = 2\n"),
        ("```text\nno\n```\nNow:\n```python\nanswer = 1\n```", "answer = 1\n"),
        ("<think>```python\nanswer = 2\n```</think>\n```python\nanswer = 1\n```", "answer = 1\n"),
    ],
)
def test_the_program_is_the_last_block_of_code(text: str, program: str) -> None:
    assert compute(text)[1][2] == [Execute(program=program)]


@pytest.mark.parametrize(
    ("written", "fallback"),
    [
        (r"So \boxed{7}.", "no_program"),
        ("```python\nanswer = 1", "no_program"),
        ("```json\n{}\n```", "no_program"),
        (Failure(kind=FailureKind.REFUSED), "refused"),
    ],
)
def test_without_a_program_the_question_is_asked_as_in_hybrid(written: str | Failure, fallback: str) -> None:
    outcome, asked = compute(written)
    assert asked[1:] == [[PROMPT], [PLAIN]]
    assert outcome.answer == "14"
    assert outcome.trace.decisions == (Decision(stage="program", action="none", fallback=fallback),)


@pytest.mark.parametrize(
    "failure",
    [
        TIMEOUT,
        Failure(kind=FailureKind.REFUSED, detail="line 1: the import of 'os' is not allowed"),
        Failure(kind=FailureKind.PROGRAM_ERROR, detail="ZeroDivisionError: division by zero"),
        Failure(kind=FailureKind.PROGRAM_MEMORY, detail="it needs more than 1024 MiB"),
        Failure(kind=FailureKind.BACKEND_ERROR, detail="the interpreter ended with exit status -9"),
    ],
)
def test_after_a_failed_program_the_question_is_asked_as_in_hybrid(failure: Failure) -> None:
    outcome, asked = compute(BLOCK, failure)
    assert asked[1:] == [[PROMPT], [Execute(program=PROGRAM)], [PLAIN]]
    assert (outcome.answer, outcome.context) == ("14", (C,))
    detail = {"program": PROGRAM, "said": failure.detail}
    decision = Decision(stage="program", action="failed", detail={**detail}, fallback=failure.kind.value)
    assert outcome.trace.decisions == (decision,)


def test_a_failed_generator_fails_the_sample_as_in_hybrid() -> None:
    failure = Failure(kind=FailureKind.TIMEOUT)
    with pytest.raises(CallFailed, match="timeout"):
        run("program-aided", lambda call: failure if isinstance(call, Generate) else world(call))


def test_a_document_that_does_not_fit_is_left_out_once() -> None:
    def answer(call: Call) -> Reply:
        if isinstance(call, Generate) and call.context:
            return Failure(kind=FailureKind.CONTEXT_EXCEEDED, detail="4,097 tokens")
        return writing("no program")(call)

    outcome, asked = run("program-aided", answer)
    assert asked[1:] == [[PROMPT], [Generate(template="program", question="What is x?")], [Generate(template="cot", question="What is x?")]]  # fmt: skip  # noqa: E501
    assert [(each.stage, each.action) for each in outcome.trace.decisions] == [("context", "drop"), ("program", "none")]


def test_equal_programs_of_two_samples_are_one_call() -> None:
    binders = [SampleBinder(Binding(pins=PINS, params=Params(), job="j"), repeat) for repeat in range(2)]
    keys = {binder.bind([Execute(program=PROGRAM)])[0].key for binder in binders}
    assert len(keys) == 1


def test_a_dry_run_prices_the_program_and_the_second_answer() -> None:
    item = Item(ordinal=0, question="?")
    rounds = list(dry_run(make_placeholder_job("program-aided", Params()), item))
    roles = [[call.role for call in round_] for round_ in rounds]
    assert roles == [["retrieve", "retrieve"], ["generate"], ["execute"], ["generate"]]
    assert list_drawn_roles("program-aided", Params(), "all") == set()


def test_a_chinese_question_has_a_chinese_prompt() -> None:
    job = make_placeholder_job("program-aided", Params())
    rounds = list(dry_run(job, Item(ordinal=0, question="前二十个正整数的平方和是多少？")))
    assert [b"program-zh@" in rounds[1][0].body, b"cot-zh@" in rounds[3][0].body] == [True, True]
