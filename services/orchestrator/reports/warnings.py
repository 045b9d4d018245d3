"""Warn about settings that make the result of jobs worthless or misleading.

None of it is an error, because all of it may be meant: a search without gold answers, a corpus without the gold
documents, the demonstration's models on questions of another kind.
"""

import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

from mathrag.messages import format_count
from shared.models import commands, shipped
from shared.models.chat import gives_logprobs
from shared.params import decode_params
from shared.pipelines import registry
from shared.pipelines.switches import get_values
from shared.rag.grading import LETTERS, InvalidGold, check_gold, describe_words, is_words
from shared.storage.database import Database
from shared.storage.datasets import COUNTED

SUBMITTED = text("SELECT id FROM jobs WHERE public_id = :job OR experiment_id = :experiment")


async def list_warnings(
    database: Database, *, job: uuid.UUID | None = None, experiment: int | None = None
) -> list[str]:
    """Return the warnings about a job, or about the jobs of an experiment, each once.

    At most the first 100,000 items of a dataset are looked at.
    """
    async with database.transaction() as connection:
        jobs = (await connection.execute(SUBMITTED, {"job": job, "experiment": experiment})).scalars().all()
        found = [
            *await list_demonstration_warnings(connection, jobs),
            *await _list_version_warnings(connection, jobs),
            *await _list_judge_warnings(connection, jobs),
            *await _list_vote_warnings(connection, jobs),
            *await _list_rule_warnings(connection, jobs),
            *await _list_dataset_warnings(connection, jobs),
        ]
    return list(dict.fromkeys(found))


def list_edit_warnings(pipelines: Iterable[str]) -> list[str]:
    """Return a warning for each source file of these pipelines that was edited after this process had imported it."""
    changed = {change.file: change for name in pipelines for change in registry.list_changed_files(name)}
    return [
        f"{change.file} was edited after the service had imported it (imported {_shorten(change.imported)}, on disk"
        f" {_shorten(change.on_disk)}): the imported version runs; restart the service"
        " (`mathrag down`, `mathrag up`) to run the file"
        for change in changed.values()
    ]


def _shorten(hash_: str | None) -> str:
    return hash_[:12] if hash_ else "no such file"


# Models.

# The model that answers, and the judge of metrics: a job pins its judge as well, where its pipeline never asks it.
SHIPPED = text("""
    SELECT d.id, d.name, d.online, array_agg(DISTINCT m.name ORDER BY m.name) AS models
    FROM jobs j JOIN datasets d ON d.id = j.dataset_id, jsonb_each(j.pins) p
        JOIN models m ON m.id = CAST(p.value ->> 'model_id' AS integer)
    WHERE j.id = ANY(:jobs) AND m.digest = ANY(:digests)
        AND (p.key = 'generate' OR p.key = 'judge'
            AND jsonb_array_length(CAST(convert_from(j.params, 'UTF8') AS jsonb) #> '{metrics,names}') > 0)
    GROUP BY d.id, d.name, d.online ORDER BY d.name""")
FIRST_QUESTIONS = text("SELECT question FROM items WHERE dataset_id = :dataset ORDER BY ordinal LIMIT 100")


async def list_demonstration_warnings(connection: AsyncConnection, jobs: Sequence[int]) -> list[str]:
    """Warn for each dataset whose questions shipped models answer, or whose answers they measure, although most of the
    first 100 are not about their made-up world.
    """
    warnings = []
    for asked in (await connection.execute(SHIPPED, {"jobs": jobs, "digests": list(shipped.DIGESTS)})).all():
        questions = (await connection.execute(FIRST_QUESTIONS, {"dataset": asked.id})).scalars().all()
        if 2 * sum(map(shipped.is_about_made_up_world, questions)) < len(questions):
            about = "this question" if asked.online else f"the questions of dataset {asked.name!r}"
            warnings.append(
                f"{shipped.WARNING} ({', '.join(asked.models)}) only know a made-up world: their results with"
                f" {about} mean nothing; use a real model (`mathrag model connect`)"
            )
    return warnings


USED = text("""
    SELECT DISTINCT m.name, m.backend, m.version
    FROM jobs j, jsonb_each(j.pins) p JOIN models m ON m.id = CAST(p.value ->> 'model_id' AS integer)
    WHERE j.id = ANY(:jobs) ORDER BY m.name""")


async def _list_version_warnings(connection: AsyncConnection, jobs: Sequence[int]) -> list[str]:
    """Warn about each model whose server has a known flaw in its version."""
    rows = (await connection.execute(USED, {"jobs": jobs})).all()
    found = ((row.name, commands.find_warning(row.backend, row.version)) for row in rows)
    return [f"model {name!r}: {warning}" for name, warning in found if warning]


JUDGES = text("""
    SELECT j.pipeline, j.params, m.name AS judge, m.backend, m.version
    FROM jobs j LEFT JOIN models m ON m.id = CAST(j.pins -> 'judge' ->> 'model_id' AS integer)
    WHERE j.id = ANY(:jobs)""")


async def _list_judge_warnings(connection: AsyncConnection, jobs: Sequence[int]) -> list[str]:
    """Warn if relevance may not be read by log-probabilities, if its source is set in vain, and if quality reorders
    nothing, as the prompt has one document.
    """
    warnings = []
    for row in (await connection.execute(JUDGES, {"jobs": jobs})).all():
        if row.pipeline not in registry.names() or (pipeline := registry.get(row.pipeline)).reads is None:
            continue
        params = decode_params(row.params)
        asks = not pipeline.ignores("rerank.by") and not pipeline.find_closed("rerank.by", get_values(params))
        asks = asks and bool(params.rerank.floor or pipeline.ignores("rerank.floor"))
        asks = asks and params.rerank.by in ("yes-no", "rating")
        if asks and row.judge and not gives_logprobs(row.backend, row.version):
            server = f"{row.backend} {row.version}".strip()
            warnings.append(
                f"the server of judge {row.judge!r} ({server}) may give no log-probabilities: then the word in a reply"
                " alone tells whether a document is relevant, and documents of the same word keep their order"
            )
        if pipeline.ignores("rated") or params.rerank.floor:
            continue
        if params.rerank.by != "auto" or params.rerank.tested:
            warnings.append(
                f"{row.pipeline!r} does not ask for relevance, so `rerank.by` and `rerank.tested` change nothing; set"
                " `rerank.floor` as well, such as 0.5"
            )
        if params.rated == 1:
            warnings.append(
                f"quality reorders nothing: {row.pipeline!r} rates one document (`rated`), without a relevance"
                " floor; use `hybrid`, which answers the same for less, or raise `rated` or `rerank.floor`"
            )
    return warnings


VOTING = text("""
    SELECT j.params, m.name AS generator, m.backend, m.version
    FROM jobs j JOIN models m ON m.id = CAST(j.pins -> 'generate' ->> 'model_id' AS integer)
    WHERE j.id = ANY(:jobs) AND j.pipeline = 'self-consistency'""")


async def _list_vote_warnings(connection: AsyncConnection, jobs: Sequence[int]) -> list[str]:
    """Warn if votes may not be weighed by log-probabilities."""
    return [
        f"the server of generator {row.generator!r} ({f'{row.backend} {row.version}'.strip()}) may give no"
        " log-probabilities: then each vote counts 1, as with `self_consistency.weights=count`"
        for row in (await connection.execute(VOTING, {"jobs": jobs})).all()
        if decode_params(row.params).self_consistency.weights == "probability"
        and not gives_logprobs(row.backend, row.version)
    ]


# Rules.

UNRULED = text("""
    WITH asked AS (
        SELECT j.id, b.id AS bank, b.name, i.query ->> 'relation' AS relation, count(*) AS n
        FROM jobs j JOIN models m ON m.id = CAST(j.pins -> 'rules' ->> 'model_id' AS integer)
        JOIN LATERAL (SELECT r.id, r.name FROM rule_banks r WHERE encode(r.hash, 'hex') = m.digest
                      ORDER BY r.id LIMIT 1) b ON true
        JOIN items i ON i.dataset_id = j.dataset_id AND i.query IS NOT NULL
            AND i.ordinal < COALESCE(CAST(j.code ->> 'limit' AS integer), i.ordinal + 1)
        WHERE j.id = ANY(:jobs) GROUP BY j.id, b.id, b.name, relation)
    SELECT name, sum(n) AS items, sum(n) FILTER (WHERE relation NOT IN (
        SELECT DISTINCT head FROM rules WHERE bank_id = a.bank)) AS unruled
    FROM asked a GROUP BY name""")


async def _list_rule_warnings(connection: AsyncConnection, jobs: Sequence[int]) -> list[str]:
    """Warn if items ask for relations that no rule of the job's bank predicts."""
    return [
        f"{row.unruled} of {row.items} items ask for relations that no rule of bank {row.name!r} leads to:"
        " they are searched for plainly"
        for row in (await connection.execute(UNRULED, {"jobs": jobs})).all()
        if row.unruled
    ]


# Datasets.

ASKED = text("""
    SELECT DISTINCT d.id, d.name, d.items AS all_items, j.pipeline, c.id AS corpus_id, c.name AS corpus,
        CAST(j.code ->> 'limit' AS integer) AS most,
        LEAST(d.items, COALESCE(CAST(j.code ->> 'limit' AS integer), d.items)) AS items,
        COALESCE(CAST(convert_from(j.params, 'UTF8') AS jsonb) #>> '{grading,grader}', '') AS grader
    FROM jobs j JOIN datasets d ON d.id = j.dataset_id LEFT JOIN corpora c ON c.id = j.corpus_id
    WHERE j.id = ANY(:jobs)
    ORDER BY d.name, corpus, items""")

UNGRADED = text("SELECT count(*) FROM items WHERE dataset_id = :dataset AND ordinal < :items AND gold IS NULL")

GOLDS = text("""
    SELECT gold FROM items WHERE dataset_id = :dataset AND ordinal < :items AND gold IS NOT NULL
    ORDER BY ordinal LIMIT :most""")

LOST = text("""
    WITH named AS (
        SELECT i.ordinal, i.custom_id, array_agg(g.key ORDER BY g.key) AS documents, count(d.ordinal) AS found
        FROM items i CROSS JOIN LATERAL jsonb_each_text(i.gold_documents) g
        LEFT JOIN corpus_documents d ON d.corpus_id = :corpus AND d.external_id = g.key
        WHERE i.dataset_id = :dataset AND i.ordinal < :items AND CAST(g.value AS integer) > 0
        GROUP BY i.ordinal, i.custom_id)
    SELECT count(*) AS items, count(*) FILTER (WHERE found = 0) AS lost,
        (SELECT documents[1] FROM named WHERE found = 0 ORDER BY ordinal LIMIT 1) AS document,
        (SELECT COALESCE(custom_id, CAST(ordinal AS text)) FROM named WHERE found = 0 ORDER BY ordinal LIMIT 1) AS item
    FROM named""")

MOST_GOLDS = 1000
"""Expected answers that are looked at, from the beginning."""


async def _list_dataset_warnings(connection: AsyncConnection, jobs: Sequence[int]) -> list[str]:
    """Warn about items that cannot be graded, words that are graded as mathematics, and relevant documents that the
    corpus lacks.
    """
    warnings = list[str]()
    for asked in (await connection.execute(ASKED, {"jobs": jobs})).all():
        seen = {"dataset": asked.id, "items": min(asked.items, COUNTED)}
        ungraded = (await connection.execute(UNGRADED, seen)).scalar_one()
        golds = (await connection.execute(GOLDS, seen | {"most": MOST_GOLDS})).scalars().all()
        warnings += filter(None, [_describe_limit(asked), *_describe_grading(asked, ungraded, golds)])
        if asked.corpus_id is not None and _searches(asked.pipeline):
            lost = (await connection.execute(LOST, seen | {"corpus": asked.corpus_id})).one()
            warnings += filter(None, [_describe_lost_documents(asked, lost)])
    return warnings


def _searches(pipeline: str) -> bool:
    """Tell whether the pipeline searches the corpus; one that is not installed any more counts as if it did."""
    return pipeline not in registry.names() or not registry.get(pipeline).ignores("duplicates")


def _describe_limit(asked: Row[Any]) -> str:
    if asked.most is None or asked.most <= asked.all_items:
        return ""
    items = format_count(asked.all_items, "item")
    return f"the limit is {asked.most}, but dataset {asked.name!r} has only {items}: all are asked"


def _describe_grading(asked: Row[Any], ungraded: int, golds: Sequence[str]) -> Iterator[str]:
    """Yield problems of grading a dataset's items; a rubric needs no expected answers."""
    if asked.grader != "rubric" and not golds:
        none = f"none of the {asked.items} items of dataset {asked.name!r} has an expected answer"
        yield f"{none}: no answer can be graded"
    elif asked.grader != "rubric" and ungraded:
        without = f"{ungraded} of the {asked.items} items of dataset {asked.name!r} have no expected answer"
        yield f"{without}: answers to them are not graded, and the accuracy is that of the others"
    if unusable := sum(not _is_usable(gold, asked.grader) for gold in golds):
        problem = f"{unusable} of {len(golds)} expected answers of dataset {asked.name!r} cannot be read by grader"
        yield f"{problem} {asked.grader!r}: no answer to these items can be right; choose another --grader"
    words = sum(map(is_words, golds))
    if not asked.grader and 2 * words > len(golds):  # the request does not choose a grader
        yield f"dataset {asked.name!r}: {describe_words(words, len(golds))}"


def _is_usable(gold: str, grader: str) -> bool:
    if grader == "choice":
        return len(gold) == 1 and gold in LETTERS
    try:
        check_gold(grader or "math", gold)
    except InvalidGold:
        return False
    return True


def _describe_lost_documents(asked: Row[Any], lost: Row[Any]) -> str:
    if not lost.lost:
        return ""
    return (
        f"{lost.lost} of {lost.items} items of dataset {asked.name!r} have no gold document in corpus {asked.corpus!r}"
        f" (item {lost.item!r} names {lost.document!r}): their recall is 0 whatever is found; choose the corpus that"
        " has these ids, or correct `gold_documents`"
    )
