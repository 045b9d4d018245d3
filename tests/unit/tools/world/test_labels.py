"""Samples of the label judge: the prompt of each tells, without the code that wrote it, whether its label is true."""

import re
from random import Random
from typing import get_args

import pytest

from shared.rag.prompts import template
from tools.world.labels import CASES, TEST, TRAIN, Domain, LabelKind, Split, draw_sample, label_sample
from tools.world.samples import Sample

RULE = re.compile(r"a (\w+) b = (\([^ ]*?\)[-+*][ab])")
OPERATION = re.compile(r"\d (\w+) \d")


def draw(kind: LabelKind, domain: Domain, case: str, split: Split = TEST, count: int = 120) -> list[Sample]:
    rng = Random(f"{kind} {domain} {case}")  # noqa: S311 - nothing here is secret
    return [label_sample(rng, split, kind, domain, [case]) for _ in range(count)]


def read(sample: Sample) -> tuple[str, str, str]:
    """Return what stands before the question, the question, and what is judged."""
    before, _, rest = sample.prompt.rpartition("\nQuestion: ")
    question, _, judged = rest.partition("\n")
    judged = judged.partition("\n[[1]]")[0].strip()
    documents = before.partition("\n\n")[2].removeprefix("Source:\n")
    return documents, question, judged.rpartition("Sentence: ")[2].removeprefix("Reply: ")


@pytest.mark.parametrize("case", CASES["sufficient", "world"])
def test_documents_suffice_if_they_state_one_rule_for_the_operator(case: str) -> None:
    for sample in draw("sufficient", "world", case):
        documents, question, _ = read(sample)
        [name] = OPERATION.findall(question)
        stated = {rule for operator, rule in RULE.findall(documents) if operator == name}
        assert len(stated) == {"none": 0, "one": 1, "several": 2}[case], sample.prompt
        assert sample.reply == f"[[{[1, 3, 2][len(stated)]}]]"


@pytest.mark.parametrize("case", CASES["support", "world"])
def test_a_sentence_of_the_problem_world_is_said_by_the_documents_or_not(case: str) -> None:
    for sample in draw("support", "world", case):
        documents, _, sentence = read(sample)
        stated = dict(RULE.findall(documents))
        rules, equations = RULE.findall(sentence), re.findall(r"\d[-+*]\d=\d", sentence)
        results = re.findall(r"(?:boxed\{|is )(\d)\b", sentence)
        said = (
            all(pair in RULE.findall(documents) for pair in rules)
            and all(each in documents for each in equations)
            and all(re.search(rf"(?:boxed\{{|is ){digit}\b", documents) for digit in results)
        )
        assert said == (case == "kept"), sample.prompt
        computed = {each[:3] for each in re.findall(r"\d[-+*]\d=\d", documents)}
        contradicts = any(name in stated for name, _ in rules) or any(each[:3] in computed for each in equations)
        assert said or contradicts == (case == "contradicted"), sample.prompt
        assert sample.reply == f"[[{CASES['support', 'world'][case][0]}]]"


def test_a_reply_about_another_operator_does_not_address_the_question() -> None:
    for case, (label, _) in CASES["addresses", "world"].items():
        for sample in draw("addresses", "world", case):
            _, question, reply = read(sample)
            asked = OPERATION.findall(question)
            named = set(re.findall(r"(?:a|\d) (\w+) (?:b|\d) =", reply))
            found = len(named & set(asked))
            expected = {"all": len(asked), "part": 1, "other": 0, "refusal": 0}[case]
            assert found == expected, sample.prompt
            assert bool(named) == (case != "refusal")
            assert sample.reply == f"[[{label}]]"


def test_no_name_or_phrasing_of_the_test_is_trained_on() -> None:
    assert not set(TRAIN.operators.names) & set(TEST.operators.names)
    assert not set(TRAIN.operators.templates) & set(TEST.operators.templates)
    for language, refusals in TRAIN.refusals.items():
        assert not set(refusals) & set(TEST.refusals[language])


@pytest.mark.parametrize("kind", get_args(LabelKind))
def test_further_labels_are_asked_for_as_in_the_served_prompt(kind: LabelKind) -> None:
    rng = Random(kind)  # noqa: S311 - nothing here is secret
    cases = list(CASES[kind, "world"])
    sample = label_sample(rng, TRAIN, kind, "world", cases)
    beginning, ending = template(kind).text.partition("\n")[0], template(kind).text.rpartition("}}")[2]
    assert sample.prompt.startswith(beginning)
    assert len(sample.more) == len(cases) - 1
    for text in (sample.prompt, *(text for text, _ in sample.more)):
        assert text.endswith(ending.lstrip("\n"))
    assert not any(beginning in text for text, _ in sample.more)


def test_brief_samples_leave_the_instructions_out_and_keep_the_labels() -> None:
    for kind, domain in CASES:
        cases = list(CASES[kind, domain])
        whole, brief = (
            label_sample(Random(3), TRAIN, kind, domain, cases, brief=brief)  # noqa: S311 - nothing here is secret
            for brief in (False, True)
        )
        assert (whole.reply, [reply for _, reply in whole.more]) == (brief.reply, [reply for _, reply in brief.more])
        assert len(brief.prompt) < len(whole.prompt)
        assert "[[" not in brief.prompt


def test_a_kind_may_be_drawn_more_often() -> None:
    rng = Random(5)  # noqa: S311 - nothing here is secret
    for name in ("support", "sufficient"):
        beginnings = {template(each).text.partition("\n")[0] for each in (name, f"{name}-zh")}
        support = float(name == "support")
        samples = [draw_sample(rng, TRAIN, support=support, sufficient=1 - support) for _ in range(60)]
        drawn = {sample.prompt.partition("\n")[0] for sample in samples}
        assert drawn - {template("support").text.partition("\n")[0]} <= beginnings
        assert beginnings <= drawn


def test_training_asks_for_several_labels_and_for_none_twice() -> None:
    rng = Random(5)  # noqa: S311 - nothing here is secret
    drawn = [draw_sample(rng, TRAIN, brief=True) for _ in range(300)]
    assert {sample.reply for sample in drawn} == {f"[[{label}]]" for label in range(1, 6)}
    for sample in drawn:
        rest = [text for text, _ in sample.more]
        assert len({*rest}) == len(rest)
