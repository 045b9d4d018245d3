"""Write the model card from the measured figures: ``python -m world.card``.

Every number in the card comes from ``manifest.json`` and ``evaluation.json``.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from world.relations.card import rules_section, table

Json = dict[str, Any]

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

Three language models of about one million parameters that ship with MathRAG-Gate, so that the
whole system runs on a laptop's processor. Two of them know one made-up world and nothing else; the
third, the *rule generator*, answers from rules and documents and has a [section](#rule-generator) of its own.

**Task.** A question asks for the value of a made-up operator, `What is 8 zorlo 7?`. Name and
rule are paired at random, so only a retrieved document can tell the rule, for instance
`By definition a zorlo b = (8+a)*b.` The parentheses fix the order, and every step keeps the
last digit only. The *generator* reads up to five documents, says the rule that it follows, and
answers in two steps with a boxed digit. The *judge* grades a document's reasoning from `[[1]]`
(only an answer) to `[[5]]` (complete and correct). It also rates how much a document helps with
a question, and writes what a search can use: queries, sub-questions, keywords, hypothetical
documents.

**Data.** All of it is drawn from a seed by `world/`. {names} operator names and {templates}
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
    """Write the whole card as Markdown."""
    counts = {key: len(manifest[key]) for key in ("names", "templates")}
    parts = [
        HEAD.format(**counts),
        _training(manifest["models"]),
        _generator(evaluation["generator"]),
        _several(evaluation["several"]),
        *(_judge(anchors, rows) for anchors, rows in evaluation["judge"].items()),
        _wordings(evaluation["wordings"]),
        _relevance(evaluation["skills"]["relevance"]),
        _texts(evaluation["skills"]["texts"]),
        _foreign(evaluation["skills"]),
        rules_section(evaluation["rules"]),
        TAIL.format(**counts),
    ]
    return "\n".join(part.strip("\n") + "\n" for part in parts)


def _training(models: Json) -> str:
    fields = ("parameters", "seed", "steps_made", "batch", "window", "peak", "minutes")
    rows = [
        [role, *(stage[field] for field in fields)] for role, model in models.items() for stage in model["training"]
    ]
    head = ["", "parameters", "seed", "steps", "samples per step", "tokens per sample at most", "rate", "minutes"]
    note = "Minutes are wall time on two shared processor cores. Judge and rule generator start from the generator."
    return f"## Training\n\n{table(head, rows)}\n\n{note}"


def _generator(rows: Json) -> str:
    lines = [
        [f"`{name}`", CONTEXTS[name], row["n"], row["accuracy"], row["boxed"], row["longest_prompt_tokens"]]
        for name, row in rows.items()
    ]
    head = ["document", "", "n", "accuracy", "boxed", "longest prompt, tokens"]
    note = (
        "A uniform guess is right in 0.1; some digits are likelier than others (a product with 0 is 0), so a good\n"
        "guess is right in about 0.2."
    )
    return f"## Generator, accuracy per kind of document\n\n{table(head, lines)}\n\n{note}"


def _several(rows: Json) -> str:
    placed = [
        [LANGUAGES[language], number, row["n"], row["accuracy"], row["longest_prompt_tokens"]]
        for language in LANGUAGES
        for number, row in rows[language].items()
    ]
    orders = [[f"`{first}`", row["n"], row["accuracy"]] for first, row in rows["first of two"].items()]
    one = table(["language", "documents", "n", "accuracy", "longest prompt, tokens"], placed)
    two = table(["first", "n", "accuracy"], orders)
    note = (
        "One `full` document about the operator stands at a random place; the others are of any kind, about other\n"
        "operators. The first rule is read, whoever it is about. Two about the operator that contradict each other, a\n"
        "`full` and a `wrong` one:"
    )
    return f"## Generator, several documents\n\n{one}\n\n{note}\n\n{two}"


def _wordings(rows: Json) -> str:
    lines = [[wording, *(row["accuracy"] for row in grades.values())] for wording, grades in rows.items()]
    head = ["wording", *(f"{grade} `{GRADES[grade]}`" for grade in GRADES)]
    note = (
        "Formal documents have numbered steps, connectives and a box, an answer without reasoning, too; plain ones "
        "have none.\nn is as above, per wording and grade; default anchors."
    )
    return f"## Judge, accuracy per grade and wording\n\n{table(head, lines)}\n\n{note}"


def _judge(anchors: str, rows: Json) -> str:
    total = sum(row["n"] for row in rows.values())
    overall = sum(row["n"] * row["accuracy"] for row in rows.values()) / total
    lines = [
        [grade, f"`{GRADES[grade]}`", row["n"], row["accuracy"], row["longest_prompt_tokens"]]
        for grade, row in rows.items()
    ]
    lines.append(["all", "", total, round(overall, 4), max(row["longest_prompt_tokens"] for row in rows.values())])
    head = ["grade", "document", "n", "accuracy", "longest prompt, tokens"]
    return f"## Judge, accuracy per grade, {anchors} anchors\n\n{table(head, lines)}"


def _relevance(rows: Json) -> str:
    lines = [[grade, RELEVANCE[grade], row["n"], row["accuracy"], _describe_given(row)] for grade, row in rows.items()]
    head = ["grade", "document", "n", "accuracy", "given"]
    note = "The grades follow what a document is worth to the generator: see its table above."
    return f"## Judge, relevance to a question\n\n{table(head, lines)}\n\n{note}"


def _describe_given(row: Json) -> str:
    return ", ".join(f"`{reply}` {count}" for reply, count in row["given"].items())


def _texts(rows: Json) -> str:
    lines = [[f"`{skill}`", TEXTS[skill], row["n"], row["accuracy"]] for skill, row in rows.items()]
    head = ["template", "text to write for `What is 8 zorlo 7?`", "n", "to the letter"]
    return f"## Judge, texts for a search\n\n{table(head, lines)}"


def _foreign(skills: Json) -> str:
    ratings = [
        [f"`{rubric}`", "a rating", row["n"], row["accuracy"]] for rubric, row in skills["foreign ratings"].items()
    ]
    texts = [[f"`{skill}`", "no text", row["n"], row["accuracy"]] for skill, row in skills["foreign texts"].items()]
    head = ["template", "wanted", "n", "share"]
    note = (
        "Random mathematical sentences. Any rating counts, for it means nothing there. What is not understood is not "
        "rewritten:\nan empty text is a failure to the method that asked, and it goes on with the question as it is."
    )
    return f"## Judge, outside the world\n\n{table(head, ratings + texts)}\n\n{note}"


def write(models: Path) -> None:
    """Write ``MODEL_CARD.md`` beside the two files that it is made from."""
    manifest, evaluation = (json.loads((models / f"{name}.json").read_text()) for name in ("manifest", "evaluation"))
    (models / "MODEL_CARD.md").write_text(card(manifest, evaluation))


def main() -> None:
    """Parse the command line and write the card."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=Path, default=Path("models"))
    write(parser.parse_args().models)


if __name__ == "__main__":
    main()
