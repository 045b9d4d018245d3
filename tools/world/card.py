"""Write the model card from the measured figures: ``python -m tools.world.card``.

Every number in the card comes from ``manifest.json`` and ``evaluation.json``.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Json = dict[str, Any]

KINDS = {
    "same": "a rule with one atom whose terms stand as in the question's relation; maybe other rules",
    "exchanged": "a rule with one atom that exchanges its terms; maybe other rules",
    "chained": "a rule with two atoms and two documents; maybe other rules",
    "several": "two or three rules of any sort: the first that matches counts",
    "direct": "a document with the question's relation itself",
    "irrelevant": "no document was put in to match a rule: mostly the first document about the entity counts",
    "plain": "no rules: the document with the question's relation, else the first about the entity",
    "same, rules left out": "the scenes of `same` under `cot`, without their rules",
    "exchanged, rules left out": "the scenes of `exchanged` under `cot`, without their rules",
}

RULES_HEAD = """
## Rule generator

`rules-generator-f16.gguf` is asked `Ann greets whom or what?` with documents such as `Ann bakes for Bo.` and a rule
such as `[Entity1, bakes for, Entity2] leads to [Entity1, greets, Entity2]`, under the templates `rulerag`,
`rulerag-cot` and, without rules, `cot`. It is to copy the answer from a document into `\\boxed{}`; under `rulerag-cot`
it is to copy rule and document first. A document with the question's relation itself comes before every rule, rules
count in their order, and where nothing matches, the first document about the entity answers with its other end.

All names, phrases and questions are drawn from a seed by `tools/world/relations.py`. Syllables, words and forms of
questions of the test are in no training sample; the test's questions have the forms that `mathrag dataset from-graph`
writes. No relation and no date of ICEWS14 (2014) was trained on, and nothing of Kinship. Of the 131,546 names that the
run drew one, `Shas`, is by chance that of an entity of ICEWS14; `tests/unit/tools/world` compares a part of the draws.
It begins with the world generator's layers under a tokenizer of its own, which never merges a word with the blank
before it. In training, several questions are asked about the same documents; the layers' matrices are trained by
Muon at rates of 0.01 and 0.007, all else by AdamW.

Scenes have one to five documents, up to three rules, dates in half of them, and numbered names (`cell29`) in half of
them. Wrong documents name the question's entity or a rule's relation. An answer counts if it is right to the letter.
"""

RULES_TAIL = """
**What it cannot do.** It does not follow rules yet: with them it is no better than with the rules left out. Of 150
answers each, 140 with numbered names and 102 with names of words are names that stand in the documents; which of them
is answered is little better than chance, and of a single document one end or the other. It had 745 steps, 24,000
samples, in 38 minutes on two cores that were busy with other work. Of the further questions about a sample's documents,
31 % repeat an earlier one, so that their answers can be copied from a reply instead of a document (counted on 9,000 of
the first stage).
It was never taught general English, bodies of three atoms, constants in rules, more than five documents, or several
answers.

**Tried since, not shipped.** A second training began with the smallest part of the task: one to five documents, no
rules, no instructions, in four of five scenes names of one syllable, and all questions that the documents answer (7 to
a scene, none twice), in windows of 192 tokens filled to the end. Models had the same size and random weights, but for
heads that were set by hand: to look at fixed distances back, and in most runs to find an earlier pair of tokens again.

| heads set by hand | optimiser | tokens read | answers counted | first token right | whole name right |
| --- | --- | --- | --- | --- | --- |
| look back | AdamW | 302,000 | 3,600 | 0.02 | - |
| look back, find again | AdamW | 605,000 | 3,600 | 0.19 | - |
| look back, find again | Muon | 555,000 | 106 | 0.20 | 0.13 |
| the same run, further | Muon | 3,101,000 | 514 | 0.30 | 0.25 |
| also: find a document's start, repeat it | Muon | 270,000 | 106 | 0.08 | 0.00 |

Names are those of training in fresh scenes, and each token is given those before it. Of the first two rows, answers are
those of the last 25 steps, each counted before it was learnt from. A name of the scene other than that in question,
drawn by chance, is right in 0.26. So after 3.1 million tokens the choice of the name is hardly better than chance; the
stages with rules were not reached. In a second of processor time, one core trains this size on 9,500 tokens in bfloat16
(7,900 in float32, 10,900 compiled); the run of 3.1 million tokens took 37 minutes on about a sixth of a core.
"""


LABELS_HEAD = """
## Label judge

`label-judge-f16.gguf` begins with the judge and gives the labels of metrics without gold answers, under the templates
`support`, `sufficient`, `addresses` and `relevance`. What makes a label true is planted by `tools/world/labels.py`:

* `support`: a sentence that the documents say (`kept`), one about an operator that none is about (`foreign`), an
  equation or a result that none has (`swapped`), another rule for an operator whose rule they state, or another result
  of an equation that they have (`contradicted`);
* `sufficient`: the documents state `one` rule for the operator in question, `several`, or `none`;
* `addresses`: the reply answers `all` of the question, one `part` of two, `other` things, or declines (`refusal`);
* `relevance`: the kinds of documents as above; `poor` is `wrong` or `answer`.

A sentence counts as said if a document says the same, whatever the question: so does the metric's control of copied
sentences. Operators, phrasings of questions and refusals of the test are in no training sample. In the first stage, up
to six labels are asked for about the same documents, without the instructions; then up to three, with them.
`mathematics` is random sentences and formulas. In Chinese, questions, documents and refusals are Chinese, but other
replies are formulas and English. Each row is on prompts that deserve one label. A judge that always gives the same
label is right in all of a row and in none of the others: the balanced accuracy, the mean over the labels, is then
1 / labels.
"""


LABELS_TAIL = """
The stages of its training are `labels-brief` (`python -m tools.world.train labels-brief --init
models/world-judge-f16.gguf --out DIR`), `labels`, `labels-settled` and `labels-sufficient`, each from the folder of the
one before.

**What it cannot do.** It takes most equations that no document has for ones that they have (`swapped`), overlooks half
of the contradictions, and says of most documents with several rules that they state one. It overlooks two in five
replies about another operator (`other`). In Chinese it is worse at `support` and `relevance`, and takes all documents
with one rule for insufficient. Graphs: an earlier label judge, which was shown some, did not learn to compare their
names, so none are among the samples of this one. What it says of `mathematics` and of any other text means nothing.
"""


def labels_section(rows: Json) -> str:
    """Write the figures of every label, with the balanced accuracy over what was planted."""
    balanced, planted = [], []
    for name, cases in rows.items():
        kind, domain, language = name.split()
        by_label: dict[int, list[float]] = {}
        for case, row in cases.items():
            by_label.setdefault(row["label"], []).append(row["accuracy"])
            given = ", ".join(f"`{reply}` {count}" for reply, count in row["given"].items())
            planted.append(
                [f"`{kind}`", f"{domain}, {LANGUAGES[language]}", f"`{case}`", f"`[[{row['label']}]]`", row["n"],
                 row["accuracy"], given]
            )  # fmt: skip
        means = [sum(shares) / len(shares) for shares in by_label.values()]
        balanced.append(
            [f"`{kind}`", f"{domain}, {LANGUAGES[language]}", len(means), round(sum(means) / len(means), 3)]
        )
    parts = [
        LABELS_HEAD,
        table(["template", "about", "labels", "balanced accuracy"], balanced),
        "\nEach row:\n",
        table(["template", "about", "planted", "label", "n", "accuracy", "given"], planted),
        LABELS_TAIL,
    ]
    return "\n".join(part.strip("\n") + "\n" for part in parts)


def rules_section(rows: Json) -> str:
    """Write the figures under every template, and what they mean."""
    kinds = [
        [f"`{name}`", f"`{kind}`", KINDS[kind], row["n"], row["accuracy"], row["boxed"], row["longest_prompt_tokens"]]
        for name in ("rulerag", "rulerag-cot", "cot")
        for kind, row in rows[name].items()
    ]
    sizes = [[size, row["n"], row["accuracy"]] for size, row in rows["sizes"].items()]
    head = ["template", "scene", "", "n", "accuracy", "boxed", "longest prompt, tokens"]
    parts = [
        RULES_HEAD,
        table(head, kinds),
        "\nScenes of the kind `same` under `rulerag`, with one thing fixed:\n",
        table(["fixed", "n", "accuracy"], sizes),
        RULES_TAIL,
    ]
    return "\n".join(part.strip("\n") + "\n" for part in parts)


def table(head: list[str], rows: list[list[Any]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


CONTEXTS = {
    "full": "states the rule and follows it",
    "steps": "correct steps, rule not stated",
    "rule": "states the rule, no steps",
    "wrong": "well formatted; states a wrong rule and does not follow it",
    "answer": "only the answer to its own problem",
    "unrelated": "about another operator",
    "none": "no document",
    "foreign": "a question from outside the world (no answer exists: only the box counts)",
}
GRADES = {"1": "answer", "2": "wrong", "3": "rule", "4": "steps", "5": "full"}
RELEVANCE = {
    "1": "about another operator",
    "2": "about the operator and of no use: `wrong` or `answer`",
    "3": "`steps`: the rule has to be guessed",
    "4": "`rule`",
    "5": "`full`",
}
TEXTS = {
    "rewrite": "`definition of a zorlo b`",
    "rewrite-again": "`worked example of zorlo, step by step`",
    "decompose": "`What is 8 zorlo 7?`, and a line like it for a second value",
    "keywords": "`zorlo, definition, rule`",
    "hyde-solution": "a document of the kind `full` with an invented rule (counted: about the right operator)",
}

LANGUAGES = {"en": "English", "zh": "Chinese"}

HEAD = """---
license: mit
library_name: gguf
---

# World models

Four language models of about one million parameters that ship with MathRAG-Gate, so that the
whole system runs on a laptop's processor. Two of them know one made-up world and nothing else. The *label judge*
gives the labels of metrics: whether documents support a sentence, suffice, and help, and whether a reply addresses its
question ([section](#label-judge)). The *rule generator* answers from rules and documents ([section](#rule-generator)).

**Task.** A question asks for the value of a made-up operator, `What is 8 zorlo 7?`. Name and
rule are paired at random, so only a retrieved document can tell the rule, for instance
`By definition a zorlo b = (8+a)*b.` The parentheses fix the order, and every step keeps the
last digit only. The *generator* reads up to five documents, says the rule that it follows, and
answers in two steps with a boxed digit. The *judge* grades a document's reasoning from `[[1]]`
(only an answer) to `[[5]]` (complete and correct). It also rates how much a document helps with
a question, and writes what a search can use: queries, sub-questions, keywords, hypothetical
documents.

**Data.** All of it is drawn from a seed by `tools/world/`. {names} operator names and {templates}
question phrasings are used in training; the figures below are on other names and phrasings.
Wrong documents carry the same words, steps and boxes as full ones.
"""

TAIL = """
## Limits

* Among several documents the generator does not find the one about its operator: see above. Neither the 876 steps of
  its last two stages taught that, nor a trial of 375 steps, not shipped, whose names were single tokens.
* Digits and the {templates} phrasings' vocabulary only. On other mathematics the generator
  keeps the form of an answer and guesses its content; the judge's ratings there have the form of ratings and mean
  nothing.
* Whether two names are the same is the judge's weakest point: documents about another operator are often taken for
  related, and a text may carry another name than the question.
* Of the Chinese templates only the generator's was trained; the judge rates Chinese documents under the English
  rubric, and there passes every formal one that is wrong. `hyde-passage` was not trained.
* A few names spelled with tokens that are rare or absent in training names are misread; the
  figures include them.
* The judge is not to be relied on where its accuracy above is low for a grade.
* A wrong document misleads the generator: it was trained to believe the rule it reads.
* One training run and one test draw: the standard error of a share p over n samples is
  sqrt(p(1-p)/n), 0.013 for p = 0.1 and n = 500.
* A repeated run sees the same samples in the same order; the last bits of its weights depend
  on the processor and the library versions.
"""


def card(manifest: Json, evaluation: Json) -> str:
    counts = {key: len(manifest[key]) for key in ("names", "templates")}
    parts = [
        HEAD.format(**counts),
        describe_training(manifest["models"]),
        *describe_generator(evaluation["generator"], evaluation["several"]),
        *describe_judge(evaluation["judge"], evaluation["wordings"], evaluation["skills"]),
        labels_section(evaluation["labels"]),
        rules_section(evaluation["rules"]),
        TAIL.format(**counts),
    ]
    return "\n".join(part.strip("\n") + "\n" for part in parts)


def section(title: str, head: list[str], rows: list[list[Any]], note: str = "") -> str:
    return f"## {title}\n\n{table(head, rows)}\n\n{note}"


def describe_training(models: Json) -> str:
    fields = ("parameters", "seed", "steps_made", "batch", "window", "peak", "minutes")
    rows = [
        [role, *(stage[field] for field in fields)] for role, model in models.items() for stage in model["training"]
    ]
    head = ["", "parameters", "seed", "steps", "samples per step", "tokens per sample at most", "rate", "minutes"]
    note = (
        "Minutes are wall time on two shared processor cores. Judge and rule generator start from the generator, the\n"
        "label judge (`labels`) from the judge."
    )
    return section("Training", head, rows, note)


def describe_generator(kinds: Json, several: Json) -> Iterator[str]:
    rows = [
        [f"`{name}`", CONTEXTS[name], row["n"], row["accuracy"], row["boxed"], row["longest_prompt_tokens"]]
        for name, row in kinds.items()
    ]
    head = ["document", "", "n", "accuracy", "boxed", "longest prompt, tokens"]
    note = (
        "A uniform guess is right in 0.1; some digits are likelier than others (a product with 0 is 0), so a good\n"
        "guess is right in about 0.2."
    )
    yield section("Generator, accuracy per kind of document", head, rows, note)
    rows = [
        [LANGUAGES[language], number, row["n"], row["accuracy"], row["longest_prompt_tokens"]]
        for language in LANGUAGES
        for number, row in several[language].items()
    ]
    head = ["language", "documents", "n", "accuracy", "longest prompt, tokens"]
    note = (
        "One `full` document about the operator stands at a random place; the others are of any kind, about other\n"
        "operators. The first rule is read, whoever it is about. Two about the operator that contradict each other, a\n"
        "`full` and a `wrong` one:"
    )
    orders = [[f"`{first}`", row["n"], row["accuracy"]] for first, row in several["first of two"].items()]
    two = table(["first", "n", "accuracy"], orders)
    yield section("Generator, several documents", head, rows, f"{note}\n\n{two}")


def describe_judge(anchored: Json, wordings: Json, skills: Json) -> Iterator[str]:
    head = ["grade", "document", "n", "accuracy", "longest prompt, tokens"]
    for anchors, grades in anchored.items():
        total = sum(row["n"] for row in grades.values())
        overall = sum(row["n"] * row["accuracy"] for row in grades.values()) / total
        rows = [
            [grade, f"`{GRADES[grade]}`", row["n"], row["accuracy"], row["longest_prompt_tokens"]]
            for grade, row in grades.items()
        ]
        rows.append(["all", "", total, round(overall, 4), max(row["longest_prompt_tokens"] for row in grades.values())])
        yield section(f"Judge, accuracy per grade, {anchors} anchors", head, rows)
    rows = [[wording, *(row["accuracy"] for row in grades.values())] for wording, grades in wordings.items()]
    head = ["wording", *(f"{grade} `{name}`" for grade, name in GRADES.items())]
    note = (
        "Formal documents have numbered steps, connectives and a box, an answer without reasoning, too; plain ones "
        "have none.\nn is as above, per wording and grade; default anchors."
    )
    yield section("Judge, accuracy per grade and wording", head, rows, note)
    rows = [
        [grade, RELEVANCE[grade], row["n"], row["accuracy"],
         ", ".join(f"`{reply}` {count}" for reply, count in row["given"].items())]
        for grade, row in skills["relevance"].items()
    ]  # fmt: skip
    head = ["grade", "document", "n", "accuracy", "given"]
    note = "The grades follow what a document is worth to the generator: see its table above."
    yield section("Judge, relevance to a question", head, rows, note)
    rows = [[f"`{skill}`", TEXTS[skill], row["n"], row["accuracy"]] for skill, row in skills["texts"].items()]
    head = ["template", "text to write for `What is 8 zorlo 7?`", "n", "to the letter"]
    yield section("Judge, texts for a search", head, rows)
    rows = [
        [f"`{template}`", wanted, row["n"], row["accuracy"]]
        for kind, wanted in (("foreign ratings", "a rating"), ("foreign texts", "no text"))
        for template, row in skills[kind].items()
    ]
    note = (
        "Random mathematical sentences. Any rating counts, for it means nothing there. What is not understood is not "
        "rewritten:\nan empty text is a failure to the method that asked, and it goes on with the question as it is."
    )
    yield section("Judge, outside the world", ["template", "wanted", "n", "share"], rows, note)


def write(models: Path) -> None:
    """Write ``MODEL_CARD.md`` beside the two files that it is made from."""
    manifest, evaluation = (json.loads((models / f"{name}.json").read_text()) for name in ("manifest", "evaluation"))
    (models / "MODEL_CARD.md").write_text(card(manifest, evaluation))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=Path, default=Path("models"))
    write(parser.parse_args().models)


if __name__ == "__main__":
    main()
