"""Measure the shipped models in their served form: ``python -m tools.world.evaluate``.

Every prompt uses names and phrasings that training never saw (mathematics from outside the
world is random anyway); decoding is greedy and unconstrained.  Writes ``evaluation.json``
next to the models.
"""

import argparse
import gc
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, get_args

import httpx2
import xllamacpp

from mathrag_gate.demo.world import GRADES, KINDS, TEST_CHINESE, TEST_NAMES, TEST_TEMPLATES, WORDINGS, Kind, Language
from shared.rag.prompts import parse_rating
from shared.replies import Failure
from tools.world import labels, relations
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

SLOTS = 8  # prompts decoded at once
SLOT_TOKENS = 768  # prompt and reply of one slot
LABEL_SLOT_TOKENS = 2048  # the same, for the label judge
REPLY_TOKENS = 64
_BOXED = re.compile(r"\\boxed\{(.*?)\}")


class ModelReply(NamedTuple):
    """A model's reply to a sample."""

    text: str
    prompt_tokens: int


@contextmanager
def serve_model(model: Path, slot_tokens: int = SLOT_TOKENS) -> Iterator[str]:
    """Serve a model on a free local port and give its address."""
    engine: Any = xllamacpp  # a compiled module without types
    params = engine.CommonParams()
    params.model.path = str(model)
    params.hostnames, params.port = ["127.0.0.1"], 0
    params.n_parallel, params.n_ctx = SLOTS, SLOTS * slot_tokens
    params.warmup, params.verbosity, params.cache_ram_mib = False, -1, 0
    # More threads only add overhead to matrices this small.
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    server = engine.Server(params)
    try:
        yield server.listening_address
    finally:
        del server
        gc.collect()  # the engine stops when its last reference goes


def ask(client: httpx2.Client, sample: Sample, tokens: int) -> ModelReply:
    """Request one greedy chat completion."""
    message = {"role": "user", "content": sample.prompt}
    body = {"messages": [message], "temperature": 0, "max_tokens": tokens}
    answer = client.post("/v1/chat/completions", json=body).raise_for_status().json()
    content = answer["choices"][0]["message"]["content"]
    return ModelReply(content, answer["usage"]["prompt_tokens"])


def ask_all(address: str, samples: Sequence[Sample], tokens: int = REPLY_TOKENS) -> list[ModelReply]:
    """Collect all replies in the samples' order."""
    with httpx2.Client(base_url=address, timeout=120) as client, ThreadPoolExecutor(SLOTS) as pool:
        return list(pool.map(lambda sample: ask(client, sample, tokens), samples))


def answered_row(address: str, samples: Sequence[Sample], tokens: int = REPLY_TOKENS) -> dict[str, Any]:
    """Measure how often the box has the right answer, and how often there is a box."""
    replies = ask_all(address, samples, tokens)
    boxes: list[list[str]] = [_BOXED.findall(reply.text) for reply in replies]
    # The last box counts, as for an answer extractor.
    hits = [found[-1:] == [sample.answer] for found, sample in zip(boxes, samples, strict=True)]
    return {**measure_hits(hits, replies), "boxed": share([bool(found) for found in boxes])}


def measure_hits(hits: Sequence[bool], replies: Sequence[ModelReply]) -> dict[str, Any]:
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


def measure_rules(model: Path, count: int, seed: int) -> dict[str, Any]:
    """Measure a row per kind and template, one per fixed size, and those of scenes with their rules left out."""
    with serve_model(model) as address:

        def row(kind: relations.Kind, name: relations.Template, size: relations.Size = FULL) -> dict[str, Any]:
            # The scenes of a kind are the same under every template.
            rng = Random(f"test {kind} {size} {seed}")
            samples = [relations.kind_sample(rng, relations.TEST, kind, name, size) for _ in range(count)]
            return answered_row(address, samples, REASONED_TOKENS if name == "rulerag-cot" else REPLY_TOKENS)

        return {
            "rulerag": {kind: row(kind, "rulerag") for kind in RULED},
            "rulerag-cot": {kind: row(kind, "rulerag-cot") for kind in RULED},
            "cot": {
                "plain": row("plain", "cot"),
                **{f"{kind}, rules left out": row(kind, "cot") for kind in RULED[:2]},
            },
            "sizes": {name: row("same", "rulerag", size) for name, size in FIXED.items()},
        }


# Measure the world's two models, over names and phrasings that training never saw.

TEXT_TOKENS = 128
TEST = Split(TEST_NAMES, TEST_TEMPLATES, TEST_CHINESE)
SEVERAL = (1, 2, 3, 5)  # documents in a prompt
FIRSTS: tuple[Kind, ...] = ("full", "wrong")  # of two documents that contradict each other
CONTEXTS: tuple[Context, ...] = (*KINDS, "unrelated", "none", "foreign")
TEXTS: tuple[Skill, ...] = ("rewrite", "rewrite-again", "decompose", "keywords", "hyde-solution")


def draw(count: int, key: str, write: Callable[..., Sample], *given: Any) -> list[Sample]:
    """Draw test samples; those of a key depend on no others."""
    rng = Random(f"test {key}")
    return [write(rng, TEST, *given) for _ in range(count)]


def graded_row(address: str, samples: Sequence[Sample]) -> dict[str, Any]:
    """Measure how often the grade is right, and count the grades given."""
    replies = ask_all(address, samples)
    given = Counter(reply.text for reply in replies)
    return {**measure_hits(_hits(samples, replies), replies), "given": dict(sorted(given.items()))}


def text_row(address: str, samples: Sequence[Sample]) -> dict[str, Any]:
    """Measure how often a text is the learned one; a hypothetical document only has to be about the right operator."""
    replies = ask_all(address, samples, TEXT_TOKENS)
    return measure_hits(_hits(samples, replies), replies)


def rated_row(address: str, samples: Sequence[Sample]) -> dict[str, Any]:
    """Measure how often there is a single rating."""
    replies = ask_all(address, samples)
    rated = [not isinstance(parse_rating(reply.text, truncated=False), Failure) for reply in replies]
    return measure_hits(rated, replies)


def _hits(samples: Sequence[Sample], replies: Sequence[ModelReply]) -> list[bool]:
    """Compare replies with samples: a reply equals the sample's, or contains the answer if that is only a part."""
    return [
        reply.text == sample.reply if sample.answer == sample.reply else sample.answer in reply.text
        for sample, reply in zip(samples, replies, strict=True)
    ]


def measure_generator(model: Path, count: int, seed: int) -> dict[str, Any]:
    """Measure a row per context, over ``count`` new samples each."""
    with serve_model(model) as address:
        return {each: answered_row(address, draw(count, f"{each} {seed}", generator_sample, each)) for each in CONTEXTS}


def measure_several(model: Path, count: int, seed: int) -> dict[str, Any]:
    """Measure a row per number of documents and language, and one per order of two contradicting documents."""
    rows: dict[str, Any] = {}
    with serve_model(model) as address:
        for language in get_args(Language):
            rows[language] = {}
            for number in SEVERAL:
                samples = draw(count, f"several {number} {language} {seed}", placed_sample, number, language)
                rows[language][str(number)] = answered_row(address, samples)
        firsts = {first: draw(count, f"contradicted {first} {seed}", contradicted_sample, first) for first in FIRSTS}
        return {**rows, "first of two": {first: answered_row(address, samples) for first, samples in firsts.items()}}


def measure_wordings(model: Path, count: int, seed: int) -> dict[str, Any]:
    """Measure the judge's row per grade, in every wording and between the template's anchors."""
    rows: dict[str, Any] = {}
    with serve_model(model) as address:
        for (language, style), wording in WORDINGS.items():
            row = rows[f"{language} {style}"] = {}
            for kind in reversed(KINDS):
                key = f"{kind} {language} {style} {seed}"
                samples = draw(count, key, judge_sample, kind, "default", wording, language)
                row[str(GRADES[kind])] = graded_row(address, samples)
    return rows


def measure_judge(model: Path, count: int, seed: int) -> dict[str, Any]:
    """Measure a row per grade, once with the template's anchors and once with anchors of the world."""
    rows: dict[str, Any] = {}
    with serve_model(model) as address:
        for anchors in get_args(Anchors):
            row = rows[anchors] = {}
            for kind in reversed(KINDS):
                samples = draw(count, f"{kind} {anchors} {seed}", judge_sample, kind, anchors)
                row[str(GRADES[kind])] = graded_row(address, samples)
    return rows


def measure_skills(model: Path, count: int, seed: int) -> dict[str, Any]:
    """Measure the judge's texts and ratings for retrieval, in the world and on mathematics from outside it."""
    foreign = {
        skill: draw(count, f"foreign {skill} {seed}", foreign_skill_sample, skill) for skill in ("relevance", *TEXTS)
    }
    quality = draw(count, f"foreign reasoning-quality {seed}", foreign_judge_sample, "default")
    rated = {"reasoning-quality": quality, "relevance": foreign["relevance"]}
    graded = {grade: draw(count, f"relevance {grade} {seed}", relevance_sample, grade) for grade in range(1, 6)}
    texts = {skill: draw(count, f"{skill} {seed}", skill_sample, skill) for skill in TEXTS}
    with serve_model(model) as address:
        return {
            "relevance": {str(grade): graded_row(address, samples) for grade, samples in graded.items()},
            "texts": {skill: text_row(address, samples) for skill, samples in texts.items()},
            "foreign ratings": {skill: rated_row(address, samples) for skill, samples in rated.items()},
            "foreign texts": {skill: text_row(address, foreign[skill]) for skill in TEXTS},
        }


def measure_labels(model: Path, count: int, seed: int) -> dict[str, Any]:
    """Measure a row per label, domain and planted case; in the problem world also in Chinese."""
    rows: dict[str, Any] = {}
    with serve_model(model, LABEL_SLOT_TOKENS) as address:
        for (kind, domain), cases in labels.CASES.items():
            for language in get_args(Language) if domain == "world" else ("en",):
                row = rows[f"{kind} {domain} {language}"] = {}
                for case, (label, _) in cases.items():
                    rng = Random(f"test {kind} {domain} {case} {language} {seed}")
                    samples: list[Sample] = []
                    while len(samples) < count:
                        sample = labels.label_sample(rng, labels.TEST, kind, domain, [case], language)
                        if sample.reply == f"[[{label}]]":  # by chance, material may deserve another label
                            samples.append(sample)
                    row[case] = {"label": label, **graded_row(address, samples)}
    return rows


MEASURES = {
    "generator": (FILES["generator"], measure_generator),
    "judge": (FILES["judge"], measure_judge),
    "several": (FILES["generator"], measure_several),
    "wordings": (FILES["judge"], measure_wordings),
    "skills": (FILES["judge"], measure_skills),
    "rules": (SHIPPED["rules"], measure_rules),
    "labels": (SHIPPED["labels"], measure_labels),
}


def table(rows: dict[str, Any]) -> str:
    """Show the rows of one report, or of nested reports one below the other."""
    return "\n".join(
        f"{name:>12}  {row['accuracy']:.3f}  {row}" if "accuracy" in row else f"{name}\n{table(row)}"
        for name, row in rows.items()
    )


def record(path: Path, role: str, rows: dict[str, Any]) -> None:
    """Add a model's rows to the report, next to those of the other model."""
    report = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**report, role: rows}, indent=2) + "\n")


def main() -> None:
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
