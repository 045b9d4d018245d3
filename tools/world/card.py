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
    "same": "a rule with one atom and the terms in the order of the question's relation; maybe other rules",
    "exchanged": "a rule with one atom that exchanges its terms; maybe other rules",
    "chained": "a rule with two atoms and two documents; maybe other rules",
    "several": "two or three rules of any sort: the first that matches counts",
    "direct": "a document with the question's relation itself",
    "irrelevant": "no document was added to match a rule: mostly the first document about the entity counts",
    "plain": "no rules: the document with the question's relation, else the first about the entity",
    "same, rules left out": "the scenes of `same` under `cot`, without their rules",
    "exchanged, rules left out": "the scenes of `exchanged` under `cot`, without their rules",
}

RULES_HEAD = """
## Rule generator

`rules-generator-f16.gguf` answers a question like `Ann greets whom or what?` from documents like `Ann bakes for Bo.`
and a rule like `[Entity1, bakes for, Entity2] leads to [Entity1, greets, Entity2]`, under the templates `rulerag`,
`rulerag-cot` and, without rules, `cot`. Its task is to copy the answer from a document into `\\boxed{}`. Under
`rulerag-cot` it copies rule and document first. A document with the question's relation itself has priority over every
rule, and rules have priority in their order. If nothing matches, the first document about the entity gives the answer,
with its other end.

`tools/world/relations.py` draws all names, phrases and questions from a seed. No training sample has the syllables,
words and question forms of the test; the test's questions have the forms that `mathrag dataset from-graph`
writes. The training has no relation and no date of ICEWS14 (2014), and no data of Kinship. One of the 131,546 drawn
names, `Shas`, is by chance the name of an entity of ICEWS14; `tests/unit/tools/world` compares a part of the draws.
The model begins with the world generator's layers under a new tokenizer, which never merges a word with the blank
before it. In training, several questions are asked about the same documents. Muon trains the layers' matrices at rates
of 0.01 and 0.007, and AdamW all other weights.

Scenes have one to five documents and up to three rules. Half of them have dates, and half have numbered names
(`cell29`). Wrong documents name the question's entity or a rule's relation. An answer counts if every letter is right.
"""

RULES_TAIL = """
**Limits of the rule generator.** It does not follow rules yet: it is no better with rules than without them. Of 150
answers each, 140 with numbered names and 102 with names of words are names from the documents. The choice among these
names is little better than chance; with a single document, it is one end or the other. The training had 745 steps and
24,000 samples, and took 38 minutes on two cores with other load. Of the further questions about a sample's documents,
31 % repeat an earlier one, so their answers can be copied from a reply instead of a document (counted on 9,000 of
the first stage).
The training had no general English, no bodies of three atoms, no constants in rules, no more than five documents, and
no questions with several answers.

**A later attempt that is not shipped.** A second training began with the smallest part of the task: one to five
documents, no rules, no instructions, names of one syllable in four of five scenes, and all questions that the documents
answer (7 per scene, none twice), in full windows of 192 tokens. The models had the same size and random weights, except
for heads that were set by hand: to look at fixed distances back, and in most runs to find an earlier pair of tokens
again.

| heads set by hand | optimiser | tokens read | answers counted | first token right | whole name right |
| --- | --- | --- | --- | --- | --- |
| look back | AdamW | 302,000 | 3,600 | 0.02 | - |
| look back, find again | AdamW | 605,000 | 3,600 | 0.19 | - |
| look back, find again | Muon | 555,000 | 106 | 0.20 | 0.13 |
| same run, continued | Muon | 3,101,000 | 514 | 0.30 | 0.25 |
| also: find a document's start, repeat it | Muon | 270,000 | 106 | 0.08 | 0.00 |

The names are those of training in new scenes, and each token is predicted from the right earlier tokens. In the first
two rows, the answers are those of the last 25 steps, each counted before the model learned from it. A random name of
the scene, other than the one in the question, is right in 0.26. After 3.1 million tokens, the choice of the name is
therefore hardly better than chance; the stages with rules were not reached. In a second of processor time, one core
trains this size on 9,500 tokens in bfloat16 (7,900 in float32, 10,900 compiled). The run of 3.1 million tokens took 37
minutes on about a sixth of a core.
"""


LABELS_HEAD = """
## Label judge

`label-judge-f16.gguf` begins with the judge and gives the labels of metrics without gold answers, under the templates
`support`, `sufficient`, `addresses` and `relevance`. `tools/world/labels.py` plants the reason for each label:

* `support`: a sentence from the documents (`kept`), one about an operator of no document (`foreign`), an
  equation or a result of no document (`swapped`), another rule for an operator whose rule they state, or another result
  of one of their equations (`contradicted`);
* `sufficient`: the documents state `one` rule for the operator in question, `several`, or `none`;
* `addresses`: the reply answers `all` of the question, one `part` of two, `other` things, or declines (`refusal`);
* `relevance`: the kinds of documents as above; `poor` is `wrong` or `answer`.

A sentence counts as supported if a document says the same, for any question, as in the metric's control of copied
sentences. No training sample has the operators, question phrasings and refusals of the test. In the first stage, the
prompts ask for up to six labels about the same documents, without the instructions; then for up to three, with them.
`mathematics` is random sentences and formulas. In Chinese, questions, documents and refusals are Chinese, but other
replies are formulas and English. Each row uses prompts with one true label. A judge that always gives the same
label is right in all of one row and in none of the others. The balanced accuracy, which is the mean over the labels, is
then 1 / labels.
"""


LABELS_TAIL = """
The stages of its training are `labels-brief` (`python -m tools.world.train labels-brief --init
models/world-judge-f16.gguf --out DIR`), `labels`, `labels-settled` and `labels-sufficient`, each from the folder of the
previous one.

**Limits of the label judge.** It accepts most equations of no document (`swapped`), overlooks half
of the contradictions, and reports one rule for most documents with several rules. It overlooks two in five
replies about another operator (`other`). In Chinese it is worse at `support` and `relevance`, and calls all documents
with one rule insufficient. An earlier label judge was trained on graphs and did not learn to compare their
names, so this one has no graphs among its samples. Its labels of `mathematics` and of any other text have no meaning.
"""


def labels_section(rows: Json) -> str:
    """Write the figures of every label, with the balanced accuracy over the planted cases."""
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
    """Write the figures under every template, with an explanation."""
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
rule are paired at random, so only a retrieved document contains the rule, for instance
`By definition a zorlo b = (8+a)*b.` The parentheses fix the order, and every step keeps only the
last digit. The *generator* reads up to five documents, states the rule that it follows, and
answers in two steps with a boxed digit. The *judge* grades a document's reasoning from `[[1]]`
(only an answer) to `[[5]]` (complete and correct). It also rates how much a document helps with
a question, and writes texts for a search: queries, sub-questions, keywords, hypothetical
documents.

**Data.** `tools/world/` draws all data from a seed. The training uses {names} operator names and {templates}
question phrasings; the figures below are for other names and phrasings.
Wrong documents have the same words, steps and boxes as full ones.
"""

TAIL = """
## Limits

* Among several documents, the generator does not find the one about its operator (see above). Neither the 876 steps of
  its last two stages taught this, nor a trial of 375 steps with names of single tokens, which is not shipped.
* The models know only digits and the vocabulary of the {templates} phrasings. On other mathematics, the generator
  keeps the form of an answer and guesses its content. The judge's ratings there have the form of ratings, but no
  meaning.
* The comparison of names is the judge's weakest point: it often treats documents about another operator as
  related, and a text may use another name than the question.
* Only the generator's Chinese template was trained. The judge rates Chinese documents under the English
  rubric, and passes every formal one that is wrong. `hyde-passage` was not trained.
* A few names with tokens that are rare or absent in training names are misread; the
  figures include them.
* Do not rely on the judge for a grade with a low accuracy above.
* A wrong document misleads the generator, because it was trained to believe the rule that it reads.
* There was one training run and one test draw. The standard error of a share p over n samples is
  sqrt(p(1-p)/n), 0.013 for p = 0.1 and n = 500.
* A repeated run uses the same samples in the same order. The last bits of its weights depend
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
        "One `full` document about the operator is at a random place; the others are of any kind, about other\n"
        "operators. The generator reads the first rule, about any operator. The next table has two contradicting\n"
        "documents about the operator, a `full` and a `wrong` one:"
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
        "Formal documents have numbered steps, connectives and a box, also for an answer without reasoning; plain ones "
        "have none.\nn is as above, per wording and grade; default anchors."
    )
    yield section("Judge, accuracy per grade and wording", head, rows, note)
    rows = [
        [grade, RELEVANCE[grade], row["n"], row["accuracy"],
         ", ".join(f"`{reply}` {count}" for reply, count in row["given"].items())]
        for grade, row in skills["relevance"].items()
    ]  # fmt: skip
    head = ["grade", "document", "n", "accuracy", "given"]
    note = "The grades follow the value of a document for the generator (see its table above)."
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
        "The texts are random mathematical sentences. Any rating counts, because it has no meaning there.\n"
        "The judge writes an empty text if it does not understand the question. The method counts this as a failure "
        "and keeps the question."
    )
    yield section("Judge, outside the world", ["template", "wanted", "n", "share"], rows, note)


def write(models: Path) -> None:
    """Write ``MODEL_CARD.md`` next to its two source files."""
    manifest, evaluation = (json.loads((models / f"{name}.json").read_text()) for name in ("manifest", "evaluation"))
    (models / "MODEL_CARD.md").write_text(card(manifest, evaluation))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=Path, default=Path("models"))
    write(parser.parse_args().models)


if __name__ == "__main__":
    main()
