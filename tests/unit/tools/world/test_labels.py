"""Samples of the label judge: the prompt of each tells, without the code that wrote it, whether its label is true."""

import re
from random import Random
from typing import get_args

import pytest

from shared.rag.prompts import template
from tools.world.labels import SORTS, TEST, TRAIN, Domain, LabelKind, Split, draw_sample, label_sample
from tools.world.samples import Sample

RULE = re.compile(r"a (\w+) b = (\([^ ]*?\)[-+*][ab])")
OPERATION = re.compile(r"\d (\w+) \d")
PREFIXES = "It is known that|They say that|As the notes say,|The notes say that|As is known,"


def draw(kind: LabelKind, domain: Domain, sort: str, split: Split = TEST, count: int = 120) -> list[Sample]:
    rng = Random(f"{kind} {domain} {sort}")  # noqa: S311 - nothing here is secret
    return [label_sample(rng, split, kind, domain, [sort]) for _ in range(count)]


def read(sample: Sample) -> tuple[str, str, str]:
    """Return what stands before the question, the question, and what is judged."""
    before, _, rest = sample.prompt.rpartition("\nQuestion: ")
    question, _, judged = rest.partition("\n")
    judged = judged.partition("\n[[1]]")[0].strip()
    documents = before.partition("\n\n")[2].removeprefix("Source:\n")
    return documents, question, judged.rpartition("Sentence: ")[2].removeprefix("Reply: ")


@pytest.mark.parametrize("sort", SORTS["sufficient", "world"])
def test_documents_suffice_if_they_state_one_rule_for_the_operator(sort: str) -> None:
    for sample in draw("sufficient", "world", sort):
        documents, question, _ = read(sample)
        [name] = OPERATION.findall(question)
        stated = {rule for operator, rule in RULE.findall(documents) if operator == name}
        assert len(stated) == {"none": 0, "one": 1, "several": 2}[sort], sample.prompt
        assert sample.reply == f"[[{[1, 3, 2][len(stated)]}]]"


@pytest.mark.parametrize("sort", SORTS["support", "world"])
def test_a_sentence_of_the_problem_world_is_said_by_the_documents_or_not(sort: str) -> None:
    for sample in draw("support", "world", sort):
        documents, _, sentence = read(sample)
        stated = dict(RULE.findall(documents))
        rules, equations = RULE.findall(sentence), re.findall(r"\d[-+*]\d=\d", sentence)
        results = re.findall(r"(?:boxed\{|is )(\d)\b", sentence)
        said = (
            all(pair in RULE.findall(documents) for pair in rules)
            and all(each in documents for each in equations)
            and all(re.search(rf"(?:boxed\{{|is ){digit}\b", documents) for digit in results)
        )
        assert said == (sort == "kept"), sample.prompt
        if sort in ("contradicted", "foreign"):
            assert (rules[0][0] in stated) == (sort == "contradicted")
        assert sample.reply == f"[[{SORTS['support', 'world'][sort][0]}]]"


def read_facts(text: str) -> tuple[list[str], list[str]]:
    """Return the facts that sentences without dates say, and those that they deny."""
    told, denied = [], []
    for sentence in re.split(r"(?<=\.)\s+", text.strip()):
        denial = re.fullmatch(r"That (.+) is not true\.|They say it is false that (.+)\.", sentence)
        if denial:
            denied.append(denial[1] or denial[2])
        else:
            told += re.sub(rf"^(?:{PREFIXES}) ", "", sentence).removesuffix(".").split(", and ")
    return told, denied


@pytest.mark.parametrize("sort", SORTS["support", "graph"])
def test_a_fact_of_a_graph_is_said_by_the_documents_or_not(sort: str) -> None:
    read_samples = 0
    for sample in draw("support", "graph", sort):
        documents, _, sentence = read(sample)
        if re.search(r"\d{4}-\d\d|\b[A-Z]\. ", f"{documents} {sentence}"):
            continue  # dates, and initials that look like the end of a sentence
        read_samples += 1
        told, denied = read_facts(documents)
        said, refused = read_facts(sentence)
        agree = [fact in told for fact in said] + [fact in denied for fact in refused]
        contradict = [fact in denied for fact in said] + [fact in told for fact in refused]
        assert len(agree) == (2 if sort in ("joined", "half") else 1)
        assert sum(agree) == {"kept": 1, "joined": 2, "half": 1}.get(sort, 0), sample.prompt
        assert any(contradict) == (sort == "denied")
    assert read_samples > 20


def test_a_reply_about_another_operator_does_not_address_the_question() -> None:
    for sort, (label, _) in SORTS["addresses", "world"].items():
        for sample in draw("addresses", "world", sort):
            _, question, reply = read(sample)
            asked = OPERATION.findall(question)
            named = set(re.findall(r"(?:a|\d) (\w+) (?:b|\d) =", reply))
            found = len(named & set(asked))
            expected = {"all": len(asked), "part": 1, "other": 0, "refusal": 0}[sort]
            assert found == expected, sample.prompt
            assert bool(named) == (sort != "refusal")
            assert sample.reply == f"[[{label}]]"


def test_no_name_or_phrasing_of_the_test_is_trained_on() -> None:
    assert not set(TRAIN.operators.names) & set(TEST.operators.names)
    assert not set(TRAIN.operators.templates) & set(TEST.operators.templates)
    assert not set(TRAIN.names.syllables) & set(TEST.names.syllables)
    assert not set(TRAIN.forms.denials) & set(TEST.forms.denials)
    for language, refusals in TRAIN.forms.refusals.items():
        assert not set(refusals) & set(TEST.forms.refusals[language])


@pytest.mark.parametrize("kind", get_args(LabelKind))
def test_further_labels_are_asked_for_as_in_the_served_prompt(kind: LabelKind) -> None:
    rng = Random(kind)  # noqa: S311 - nothing here is secret
    sorts = list(SORTS[kind, "world"])
    sample = label_sample(rng, TRAIN, kind, "world", sorts)
    beginning, ending = template(kind).text.partition("\n")[0], template(kind).text.rpartition("}}")[2]
    assert sample.prompt.startswith(beginning)
    assert len(sample.more) == len(sorts) - 1
    for text in (sample.prompt, *(text for text, _ in sample.more)):
        assert text.endswith(ending.lstrip("\n"))
    assert not any(beginning in text for text, _ in sample.more)


def test_brief_samples_leave_the_instructions_out_and_keep_the_labels() -> None:
    for kind, domain in SORTS:
        sorts = list(SORTS[kind, domain])
        whole, brief = (
            label_sample(Random(3), TRAIN, kind, domain, sorts, brief=brief)  # noqa: S311 - nothing here is secret
            for brief in (False, True)
        )
        assert (whole.reply, [reply for _, reply in whole.more]) == (brief.reply, [reply for _, reply in brief.more])
        assert len(brief.prompt) < len(whole.prompt)
        assert "[[" not in brief.prompt


def test_training_asks_for_several_labels_of_every_kind_and_domain() -> None:
    rng = Random(5)  # noqa: S311 - nothing here is secret
    drawn = [draw_sample(rng, TRAIN, {"world": 2, "graph": 1, "mathematics": 1}) for _ in range(300)]
    assert {sample.reply for sample in drawn} == {f"[[{label}]]" for label in range(1, 6)}
    assert all(sample.more for sample in drawn)
