"""Measure the shipped models as they are served: ``python -m world.evaluate``.

Every prompt uses names and phrasings that training never saw (mathematics from outside the
world is random anyway); decoding is greedy and unconstrained.  Writes ``evaluation.json``
next to the models.
"""

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, get_args

from shared.rag.prompts import parse_rating
from shared.replies import Failure
from world.problems import GRADES, KINDS, TEST_CHINESE, TEST_NAMES, TEST_TEMPLATES, Kind
from world.relations.evaluation import measure_rules
from world.release import FILES, SHIPPED
from world.samples import (
    Anchors,
    Context,
    Sample,
    Split,
    contradicted_sample,
    foreign_judge_sample,
    generator_sample,
    judge_sample,
    placed_sample,
)
from world.serving import Reply, answered_row, ask_all, measure_hits, serve_model
from world.skills import Skill, foreign_skill_sample, relevance_sample, skill_sample
from world.wording import WORDINGS, Language, Style

TEXT_TOKENS = 128
TEST = Split(TEST_NAMES, TEST_TEMPLATES, TEST_CHINESE)
SEVERAL = (1, 2, 3, 5)  # documents in a prompt
CONTEXTS: tuple[Context, ...] = (*KINDS, "unrelated", "none", "foreign")
TEXTS: tuple[Skill, ...] = ("rewrite", "rewrite-again", "decompose", "keywords", "hyde-solution")


def generator_row(address: str, context: Context, count: int, seed: int) -> dict[str, Any]:
    """Measure accuracy in one context, and how often a boxed answer could be read."""
    rng = Random(f"test {context} {seed}")
    return answered_row(address, [generator_sample(rng, TEST, context) for _ in range(count)])


def several_row(address: str, documents: int, language: Language, count: int, seed: int) -> dict[str, Any]:
    """Measure accuracy with one right document among `documents`."""
    rng = Random(f"test several {documents} {language} {seed}")
    return answered_row(address, [placed_sample(rng, TEST, documents, language) for _ in range(count)])


def contradicted_row(address: str, first: Kind, count: int, seed: int) -> dict[str, Any]:
    """Measure accuracy with a full document before or after a wrong one about the same operator."""
    rng = Random(f"test contradicted {first} {seed}")
    return answered_row(address, [contradicted_sample(rng, TEST, first) for _ in range(count)])


def judge_row(address: str, kind: Kind, anchors: Anchors, count: int, seed: int) -> dict[str, Any]:
    """Measure accuracy on one grade, and count the grades given."""
    rng = Random(f"test {kind} {anchors} {seed}")
    return graded_row(address, [judge_sample(rng, TEST, kind, anchors) for _ in range(count)])


def worded_row(address: str, kind: Kind, language: Language, style: Style, count: int, seed: int) -> dict[str, Any]:
    """Measure accuracy on one grade for documents in one wording, between the template's anchors."""
    rng, wording = Random(f"test {kind} {language} {style} {seed}"), WORDINGS[language, style]
    return graded_row(address, [judge_sample(rng, TEST, kind, "default", wording, language) for _ in range(count)])


def graded_row(address: str, samples: Sequence[Sample]) -> dict[str, Any]:
    """Measure how often the grade is right, and count the grades given."""
    replies = ask_all(address, samples)
    given = Counter(reply.text for reply in replies)
    return {**measure_hits(_hits(samples, replies), replies), "given": dict(sorted(given.items()))}


def relevance_row(address: str, grade: int, count: int, seed: int) -> dict[str, Any]:
    """Measure accuracy on one grade of relevance, and count the grades given."""
    rng = Random(f"test relevance {grade} {seed}")
    return graded_row(address, [relevance_sample(rng, TEST, grade) for _ in range(count)])


def text_row(address: str, skill: Skill, count: int, seed: int) -> dict[str, Any]:
    """Measure how often a text is the learned one; a hypothetical document only has to be about the right operator."""
    rng = Random(f"test {skill} {seed}")
    samples = [skill_sample(rng, TEST, skill) for _ in range(count)]
    replies = ask_all(address, samples, TEXT_TOKENS)
    return measure_hits(_hits(samples, replies), replies)


def silent_row(address: str, skill: Skill, count: int, seed: int) -> dict[str, Any]:
    """Measure how often no text is written about mathematics from outside the world."""
    rng = Random(f"test foreign {skill} {seed}")
    samples = [foreign_skill_sample(rng, TEST, skill) for _ in range(count)]
    replies = ask_all(address, samples, TEXT_TOKENS)
    return measure_hits(_hits(samples, replies), replies)


def rated_row(address: str, skill: str, count: int, seed: int) -> dict[str, Any]:
    """Measure how often mathematics from outside the world gets a single rating."""
    rng = Random(f"test foreign {skill} {seed}")
    samples = [
        foreign_skill_sample(rng, TEST, "relevance")
        if skill == "relevance"
        else foreign_judge_sample(rng, TEST, "default")
        for _ in range(count)
    ]
    replies = ask_all(address, samples)
    rated = [not isinstance(parse_rating(reply.text, truncated=False), Failure) for reply in replies]
    return measure_hits(rated, replies)


def _hits(samples: Sequence[Sample], replies: Sequence[Reply]) -> list[bool]:
    """Compare replies with samples: a reply equals the sample's, or contains the answer if that is only a part."""
    return [
        reply.text == sample.reply if sample.answer == sample.reply else sample.answer in reply.text
        for sample, reply in zip(samples, replies, strict=True)
    ]


def measure_generator(model: Path, count: int, seed: int) -> dict[str, Any]:
    """Measure a row per context, over ``count`` new samples each."""
    with serve_model(model) as address:
        return {each: generator_row(address, each, count, seed) for each in CONTEXTS}


def measure_several(model: Path, count: int, seed: int) -> dict[str, Any]:
    """Measure a row per number of documents and language, and one per order of two contradicting documents."""
    with serve_model(model) as address:
        placed: dict[str, Any] = {
            language: {str(number): several_row(address, number, language, count, seed) for number in SEVERAL}
            for language in get_args(Language)
        }
        firsts: tuple[Kind, ...] = ("full", "wrong")
        return {**placed, "first of two": {first: contradicted_row(address, first, count, seed) for first in firsts}}


def measure_wordings(model: Path, count: int, seed: int) -> dict[str, Any]:
    """Measure the judge's row per grade, in every wording."""
    with serve_model(model) as address:
        return {
            f"{language} {style}": {
                str(GRADES[kind]): worded_row(address, kind, language, style, count, seed) for kind in reversed(KINDS)
            }
            for language, style in WORDINGS
        }


def measure_judge(model: Path, count: int, seed: int) -> dict[str, Any]:
    """Measure a row per grade, once with the template's anchors and once with anchors of the world."""
    with serve_model(model) as address:
        return {
            anchors: {str(GRADES[kind]): judge_row(address, kind, anchors, count, seed) for kind in reversed(KINDS)}
            for anchors in get_args(Anchors)
        }


def measure_skills(model: Path, count: int, seed: int) -> dict[str, Any]:
    """Measure the judge's texts and ratings for retrieval, in the world and outside it."""
    rated = ("reasoning-quality", "relevance")
    with serve_model(model) as address:
        return {
            "relevance": {str(grade): relevance_row(address, grade, count, seed) for grade in range(1, 6)},
            "texts": {skill: text_row(address, skill, count, seed) for skill in TEXTS},
            "foreign ratings": {skill: rated_row(address, skill, count, seed) for skill in rated},
            "foreign texts": {skill: silent_row(address, skill, count, seed) for skill in TEXTS},
        }


MEASURES = {
    "generator": (FILES["generator"], measure_generator),
    "judge": (FILES["judge"], measure_judge),
    "several": (FILES["generator"], measure_several),
    "wordings": (FILES["judge"], measure_wordings),
    "skills": (FILES["judge"], measure_skills),
    "rules": (SHIPPED["rules"], measure_rules),
}


def table(rows: dict[str, Any]) -> str:
    """Show the rows of one report, or of nested reports one below the other."""
    return "\n".join(
        f"{name:>12}  {row['accuracy']:.3f}  {row}" if "accuracy" in row else f"{name}\n{table(row)}"
        for name, row in rows.items()
    )


def record(path: Path, role: str, rows: dict[str, Any]) -> None:
    """Put a model's rows into the report, beside those of the other model."""
    report = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**report, role: rows}, indent=2) + "\n")


def main() -> None:
    """Parse the command line, measure and write the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("roles", nargs="*", metavar="|".join(MEASURES), help="default: all")
    parser.add_argument("--models", type=Path, default=Path("models"))
    parser.add_argument("--count", type=int, default=500, help="samples per kind and grade")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    for role in args.roles or MEASURES:
        file, measure = MEASURES[role]
        rows = measure(args.models / file, args.count, args.seed)
        print(table(rows), flush=True)
        record(args.models / "evaluation.json", role, rows)


if __name__ == "__main__":
    main()
