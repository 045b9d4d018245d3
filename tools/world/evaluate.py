"""Measure the shipped models as they are served: ``python -m tools.world.evaluate``.

Every prompt uses names and phrasings that training never saw (mathematics from outside the
world is random anyway); decoding is greedy and unconstrained.  Writes ``evaluation.json``
next to the models.
"""

import argparse
import gc
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, get_args

import httpx2
import xllamacpp

from mathrag.demo.world import GRADES, KINDS, TEST_CHINESE, TEST_NAMES, TEST_TEMPLATES, WORDINGS, Kind, Language, Style
from shared.rag.prompts import parse_rating
from shared.replies import Failure
from tools.world import relations as relations
from tools.world.release import FILES, SHIPPED
from tools.world.samples import (
    Anchors,
    Context,
    Sample,
    Skill,
    Split,
    contradicted_sample,
    foreign_judge_sample,
    foreign_skill_sample,
    generator_sample,
    judge_sample,
    placed_sample,
    relevance_sample,
    skill_sample,
)

# Serve models, collect greedy replies, and measure how often these hit.

SLOTS = 8  # prompts decoded at once
SLOT_TOKENS = 768  # prompt and reply of one slot
REPLY_TOKENS = 64
_BOXED = re.compile(r"\\boxed\{(.*?)\}")


class Reply(NamedTuple):
    """A model's reply to a sample."""

    text: str
    prompt_tokens: int


@contextmanager
def serve_model(model: Path) -> Iterator[str]:
    """Serve a model on a free local port and give its address."""
    engine: Any = xllamacpp  # a compiled module without types
    params = engine.CommonParams()
    params.model.path = str(model)
    params.hostnames, params.port = ["127.0.0.1"], 0
    params.n_parallel, params.n_ctx = SLOTS, SLOTS * SLOT_TOKENS
    params.warmup, params.verbosity, params.cache_ram_mib = False, -1, 0
    # More threads only add overhead to matrices this small.
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    server = engine.Server(params)
    try:
        yield server.listening_address
    finally:
        del server
        gc.collect()  # the engine stops when its last reference goes


def ask(client: httpx2.Client, sample: Sample, tokens: int) -> Reply:
    """Request one greedy chat completion."""
    message = {"role": "user", "content": sample.prompt}
    body = {"messages": [message], "temperature": 0, "max_tokens": tokens}
    answer = client.post("/v1/chat/completions", json=body).raise_for_status().json()
    content = answer["choices"][0]["message"]["content"]
    return Reply(content, answer["usage"]["prompt_tokens"])


def ask_all(address: str, samples: Sequence[Sample], tokens: int = REPLY_TOKENS) -> list[Reply]:
    """Collect all replies in the samples' order."""
    with (
        httpx2.Client(base_url=address, timeout=120) as client,
        ThreadPoolExecutor(SLOTS) as pool,
    ):
        return list(pool.map(lambda sample: ask(client, sample, tokens), samples))


def read_box(text: str) -> str | None:
    """Return the content of the last box, as an answer extractor does; None if there is no box."""
    found: list[str] = _BOXED.findall(text)
    return found[-1] if found else None


def answered_row(address: str, samples: Sequence[Sample], tokens: int = REPLY_TOKENS) -> dict[str, Any]:
    """Measure how often the box has the right answer, and how often there is a box."""
    replies = ask_all(address, samples, tokens)
    answers = [read_box(reply.text) for reply in replies]
    hits = [answer == sample.answer for answer, sample in zip(answers, samples, strict=True)]
    readable = [answer is not None for answer in answers]
    return {**measure_hits(hits, replies), "boxed": share(readable)}


def measure_hits(hits: Sequence[bool], replies: Sequence[Reply]) -> dict[str, Any]:
    """Make a report's row of hits."""
    longest = max(reply.prompt_tokens for reply in replies)
    return {"n": len(hits), "accuracy": share(hits), "longest_prompt_tokens": longest}


def share(flags: Sequence[bool]) -> float:
    """Return the share of flags that are set, to four digits."""
    return round(sum(flags) / len(flags), 4)


# Measure the rule generator: made-up names, phrases and forms of questions that training never saw.

FULL = relations.Size(5, 3, dated=0.5, numbered=0.5)
REASONED_TOKENS = 224
#: Scenes of the kind `same` in which one thing is fixed.
FIXED: dict[str, relations.Size] = {
    "1 document": relations.Size(1, 1, dated=0.5, numbered=0.5),
    "3 documents": relations.Size(3, 2, dated=0.5, numbered=0.5),
    "numbered names": relations.Size(5, 3, dated=0.0, numbered=1.0),
    "names of words": relations.Size(5, 3, dated=1.0, numbered=0.0),
}
RULED: tuple[relations.Kind, ...] = tuple(kind for kind in get_args(relations.Kind) if kind != "plain")


def draw(kind: relations.Kind, name: relations.Template, size: relations.Size, count: int, seed: int) -> list[Sample]:
    """Test samples; the scenes of a kind are the same under every template."""
    rng = Random(f"test {kind} {size} {seed}")
    return [relations.kind_sample(rng, relations.TEST, kind, name, size) for _ in range(count)]


def measure_rules(model: Path, count: int, seed: int) -> dict[str, Any]:
    """A row per kind and template, one per fixed size, and those of the same scenes with their rules left out."""
    with serve_model(model) as address:

        def row(samples: Sequence[Sample], tokens: int = REPLY_TOKENS) -> dict[str, Any]:
            return answered_row(address, samples, tokens)

        return {
            "rulerag": {kind: row(draw(kind, "rulerag", FULL, count, seed)) for kind in RULED},
            "rulerag-cot": {kind: row(draw(kind, "rulerag-cot", FULL, count, seed), REASONED_TOKENS) for kind in RULED},
            "cot": {
                "plain": row(draw("plain", "cot", FULL, count, seed)),
                **{f"{kind}, rules left out": row(draw(kind, "cot", FULL, count, seed)) for kind in RULED[:2]},
            },
            "sizes": {name: row(draw("same", "rulerag", size, count, seed)) for name, size in FIXED.items()},
        }


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
