"""Questions that the judge model writes from passages: what is checked, and why a candidate is left out."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from shared.calls import Call, Judge, Retrieve, Write
from shared.params import Params
from shared.pipelines import registry
from shared.pipelines.write_questions import REASONS, Candidate, read_candidate
from shared.processes.children import limit_processor_time
from shared.replies import CallFailed, Document, Failure, FailureKind, Generated, Hit, Rated, Reply, Retrieved
from shared.samples import Item, Outcome, Passages, Sample
from tests.unit.shared.pipelines.test_pipelines import drive

BRIDGE = Document(text="The Iron Bridge was opened in 1781. It crosses\nthe River Severn near Coalbrookdale.")
RIVER = Document(text="The River Severn rises on Plynlimon in Wales and is 354 km long.")
OTHER = Document(text="In 1781, William Herschel discovered Uranus.")
LIBRARY = {each.hash: each for each in (BRIDGE, RIVER, OTHER)}
EMPTY = Failure(kind=FailureKind.UNPARSED, detail="nothing")
GOOD = """Question: When was the Iron Bridge opened?
Answer: 1781
Quotation: The Iron Bridge was opened in 1781."""
HOPS = """Question: How long is the river that the Iron Bridge crosses?
Answer: 354 km
Quotation: It crosses the River Severn near Coalbrookdale.
Quotation: The River Severn rises on Plynlimon in Wales and is 354 km long."""


def write(*given: Any, **options: Any) -> Outcome:
    return run(*given, **options)[0]


def run(
    written: str = GOOD,
    documents: Sequence[Document] = (BRIDGE,),
    *,
    found: Mapping[tuple[Document, ...], str] | None = None,
    guess: str = "I do not know",
    label: int = 2,
    style: str = "",
) -> tuple[Outcome, list[list[Call]]]:
    """Run the pipeline on these passages; `found` has the answers from them, which are right by default."""
    answers = {tuple(documents): "It is 1781." if documents == (BRIDGE,) else "354 km", **(found or {})}

    def answer(call: Call) -> Reply:
        match call:
            case Write(template="write-question" | "write-two-hop-question"):
                assert call.documents == tuple(each.hash for each in documents)
                assert ("\n" + style in call.slots.get("style", "")) if style else not call.slots
                return Generated(text=written)
            case Write(template="answer-from-passages"):
                return Generated(text=answers.get(tuple(LIBRARY[each] for each in call.documents), "UNKNOWN"))
            case Write(template="short-answer"):
                assert not call.documents
                return Generated(text=guess)
            case Judge(rubric="standalone"):
                return Rated(rating=label, text="")
            case Retrieve():
                order = [BRIDGE, OTHER, RIVER]
                return Retrieved(
                    hits=tuple(Hit(document=each.hash, rank=n, score=1 / n) for n, each in enumerate(order, 1))
                )
        raise AssertionError(call)

    sample = Sample(
        item=Item(ordinal=0, question="bridge"),
        given=Passages(documents=tuple(each.hash for each in documents), style=style),
    )
    return drive(registry.get("write-questions").run(sample, Params(), LIBRARY), answer)


def reason(outcome: Outcome) -> str:
    return outcome.trace.decisions[0].action


def test_a_question_that_passes_every_check_is_kept_with_its_quotation_and_its_flags() -> None:
    outcome = write()
    detail = outcome.trace.decisions[0].detail
    assert (outcome.answer, reason(outcome), outcome.context) == (
        "When was the Iron Bridge opened?", "kept", (BRIDGE.hash,)
    )  # fmt: skip
    assert (detail["answer"], detail["quotations"]) == ("1781", ["The Iron Bridge was opened in 1781."])
    assert detail["also_in"] == [OTHER.hash]  # 1781 stands there, too; not in the river's passage
    assert detail["guessable"] is False
    assert detail["overlap"] == pytest.approx(5 / 6)  # all but "when"


def test_a_question_that_the_model_answers_without_documents_is_flagged_and_kept() -> None:
    outcome = write(guess="In the year 1781, I think.")
    assert (reason(outcome), outcome.trace.decisions[0].detail["guessable"]) == ("kept", True)


def test_blanks_marks_and_reasoning_around_the_lines_do_not_matter() -> None:
    written = """<think>Question: Wrong?</think>
**Question:** When was the Iron Bridge
opened?
- **Answer**: "1781"
> Quotation 1: “It crosses the River   Severn near Coalbrookdale.”"""
    assert reason(write(written)) == "answer_not_quoted"
    assert reason(write(written.replace("1781", "Coalbrookdale"))) == "unanswered"
    kept = write(written.replace("1781", "Coalbrookdale"), found={(BRIDGE,): "Coalbrookdale"})
    assert kept.trace.decisions[0].detail["quotations"] == ["It crosses\nthe River Severn near Coalbrookdale."]
    assert kept.answer == "When was the Iron Bridge opened?"


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("NONE", "nothing_to_ask"),
        ("**NONE**. The passage is a heading.", "nothing_to_ask"),
        ("", "unreadable"),
        ("I would ask when the bridge was opened.", "unreadable"),
        (GOOD.replace("Answer: 1781\n", ""), "unreadable"),
        (GOOD + "\nQuotation: It crosses", "unreadable"),
        (GOOD + "\nQuestion: Where is it?", "unreadable"),
        (GOOD.replace("was opened in", "opened in"), "not_quoted"),
        (GOOD.replace("Answer: 1781", "Answer: 1782"), "answer_not_quoted"),
        (GOOD.replace("Answer: 1781", "Answer: Iron Bridge"), "answer_in_question"),
        (GOOD.replace("the Iron Bridge opened?", "the bridge of this passage opened?"), "names_passage"),
        (GOOD.replace("When was the Iron Bridge opened?", "What year does the text say?"), "names_passage"),
        ("Question: ?\nAnswer: ...\nQuotation: The Iron Bridge was opened in 1781.", "answer_not_quoted"),
    ],
)
def test_a_candidate_that_fails_a_check_without_a_model_costs_one_call(written: str, expected: str) -> None:
    outcome, asked = run(written)
    assert len(asked) == 1
    assert (reason(outcome), outcome.answer, outcome.refusal) == (expected, None, REASONS[expected])


@pytest.mark.parametrize(
    ("question", "is_left_out"),
    [
        ("According to both passages, when was it opened?", True),
        ("What do the two passages share?", True),
        ("When was the bridge of passage [1] opened?", True),
        ("When was it opened according to the text?", True),
        ("本文中铁桥是哪一年建成的?", True),
        ("What does the text editor Vim use?", False),
        ("What is the context window of GPT-2?", False),
        ("Which of these texts was written first?", False),
        ("日本文化的起源是什么?", False),
        ("这句话在中文中怎么说?", False),
        ("哪个资料库最大?", False),
    ],
)
def test_a_question_that_speaks_of_its_passage_is_left_out(question: str, is_left_out: bool) -> None:
    written = GOOD.replace("When was the Iron Bridge opened?", question)
    found = read_candidate(written, [BRIDGE.text])
    assert (found == "names_passage") == is_left_out


@pytest.mark.parametrize(
    "line",
    [
        "Answer: 1781", "2. Answer: 1781", "**Answer: 1781**", "**Answer**: **1781**", "Answer: `1781`",
        "- ANSWER : “1781”", "Answer: [1] 1781",
    ],
)  # fmt: skip
def test_marks_around_an_answer_do_not_belong_to_it(line: str) -> None:
    outcome = write(GOOD.replace("Answer: 1781", line))
    assert outcome.trace.decisions[0].detail["answer"] == "1781"


def test_marks_inside_an_answer_stay() -> None:
    passage = "The method `__init__` takes *args and no other argument."
    for answer in ("`__init__`", "*args"):
        candidate = read_candidate(f"Question: What is it?\nAnswer: {answer}\nQuotation: {passage}", [passage])
        assert isinstance(candidate, Candidate)
        assert candidate.answer == answer.strip("`")


def test_a_reply_gives_the_answer_only_with_the_same_numbers() -> None:
    written = GOOD.replace("Answer: 1781", "Answer: opened in 1781")
    assert reason(write(written, found={(BRIDGE,): "It was opened in 1790"})) == "unanswered"
    assert reason(write(written, found={(BRIDGE,): "opened 1781"})) == "kept"


def test_a_quotation_that_is_only_the_answer_proves_nothing() -> None:
    assert reason(write("Question: When was it opened?\nAnswer: 1781\nQuotation: 1781")) == "answer_not_quoted"


@pytest.mark.parametrize("text", ["\n" * 100_000, "Question" + " " * 100_000, "> " * 50_000, "Answer:" * 20_000])
def test_a_reply_of_100_000_characters_is_read_without_delay(text: str) -> None:
    with limit_processor_time(20.0):
        assert read_candidate(text, [BRIDGE.text]) == "unreadable"


@pytest.mark.parametrize(("label", "expected"), [(None, "not_labelled"), (2, "kept")])
def test_a_missing_label_leaves_the_candidate_out_and_a_missing_guess_does_not(
    label: int | None, expected: str
) -> None:
    def answer(call: Call) -> Reply:
        if isinstance(call, Judge):
            return EMPTY if label is None else Rated(rating=label, text="")
        if isinstance(call, Retrieve):
            return Retrieved(hits=())
        assert isinstance(call, Write)
        return {"short-answer": EMPTY, "write-question": Generated(text=GOOD)}.get(
            call.template, Generated(text="1781")
        )

    sample = Sample(item=Item(ordinal=0, question="b"), given=Passages(documents=(BRIDGE.hash,)))
    outcome = drive(registry.get("write-questions").run(sample, Params(), LIBRARY), answer)[0]
    assert (reason(outcome), outcome.trace.decisions[0].detail["guessable"]) == (expected, False)


def test_an_altered_word_of_a_quotation_leaves_the_candidate_out() -> None:
    for word in ("Iron", "opened", "1781"):
        altered = GOOD[: GOOD.index("Quotation")] + GOOD[GOOD.index("Quotation") :].replace(word, "other")
        assert reason(write(altered)) == "not_quoted", word


def test_a_candidate_that_the_model_cannot_answer_or_understand_is_left_out() -> None:
    assert reason(write(found={(BRIDGE,): "UNKNOWN"})) == "unanswered"
    assert reason(write(label=1)) == "not_standalone"


def test_a_question_of_two_passages_is_kept_only_if_neither_is_enough() -> None:
    both = (BRIDGE, RIVER)
    assert reason(write(HOPS, both)) == "kept"
    assert reason(write(HOPS, both, found={(RIVER,): "354 km"})) == "one_hop"
    assert reason(write(HOPS, both, found={(BRIDGE,): "It is 354 km"})) == "one_hop"
    lines = HOPS.split("\n")
    swapped = write("\n".join([*lines[:2], lines[3], lines[2]]), both)
    assert reason(swapped) == "kept"
    assert swapped.trace.decisions[0].detail["quotations"] == write(HOPS, both).trace.decisions[0].detail["quotations"]
    twice = "\n".join([*lines[:2], lines[3], lines[3]])
    assert reason(write(twice, both)) == "not_quoted"
    assert reason(write(GOOD, both)) == "unreadable"


def test_the_style_stands_in_the_prompt() -> None:
    assert reason(write(style="Ask in a few keywords.")) == "kept"


def test_a_call_without_a_reply_fails_the_sample() -> None:
    def refuse(call: Call) -> Reply:
        return Failure(kind=FailureKind.CONNECTION, detail="gone")

    sample = Sample(item=Item(ordinal=0, question="b"), given=Passages(documents=(BRIDGE.hash,)))
    with pytest.raises(CallFailed):
        drive(registry.get("write-questions").run(sample, Params(), LIBRARY), refuse)


def test_a_chinese_passage_gets_chinese_prompts() -> None:
    passage = Document(text="铁桥于一七八一年建成，位于英国什罗普郡。")
    asked: list[str] = []

    def answer(call: Call) -> Reply:
        match call:
            case Write():
                asked.append(call.template)
                written = "问题：铁桥是哪一年建成的？\n答案：一七八一年\n引文：铁桥于一七八一年建成"
                return Generated(text=written if "write" in call.template else "一七八一年")
            case Judge():
                asked.append(call.rubric)
                return Rated(rating=2, text="")
        return Retrieved(hits=())

    sample = Sample(item=Item(ordinal=0, question="b"), given=Passages(documents=(passage.hash,)))
    outcome = drive(registry.get("write-questions").run(sample, Params(), {passage.hash: passage}), answer)[0]
    assert reason(outcome) == "kept"
    assert asked == ["write-question-zh", "answer-from-passages-zh", "short-answer-zh", "standalone-zh"]
