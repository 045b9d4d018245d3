"""Builds the bodies that answer a batch's lines, a page at a time, from what their samples ended with."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from services.orchestrator.openai.chat_jobs import ANSWER_FIELDS
from services.orchestrator.openai.completions import ChatCompletion
from services.orchestrator.openai.embeddings import check_dimensions, to_body
from shared.errors import Invalid
from shared.pipelines.conversation import CONVERSATION
from shared.pipelines.embedding import EMBEDDING
from shared.replies import Embedded, Generated, Reply
from shared.samples import Outcome, Texts
from shared.storage import corpora
from shared.storage.database import sql, try_decode, try_decode_params
from shared.storage.provenance import find_answering_text, find_extractor

REPLIES = sql("""
    SELECT t.sample_id, a.reply, a.prompt_tokens, a.completion_tokens
    FROM steps t JOIN calls c ON c.id = t.call_id AND c.role IN ('generate', 'embed')
    JOIN attempts a ON {ACCEPTED_FOR} c.id
    WHERE t.sample_id = ANY(:samples) ORDER BY t.sample_id, t.position, t.slot""")
_REPLY: msgspec.json.Decoder[Reply] = msgspec.json.Decoder(Reply)
_TEXTS = msgspec.json.Decoder(Texts)

Cited = Mapping[tuple[str | None, str], corpora.Shown]
"""Documents by corpus and hash."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What answers one line."""

    body: dict[str, Any]
    prompt_tokens: int = 0
    completion_tokens: int = 0


async def read_answers(connection: AsyncConnection, rows: Sequence[RowMapping]) -> dict[int, Answer | Invalid]:
    """Return the answers of these lines by line number; lines without an answer are missing.

    An `Invalid` stands for vectors whose length differs from the requested one.
    """
    replies = defaultdict(list)
    samples = [row["sample"] for row in rows if row["outcome"] is not None]
    for each in await connection.execute(REPLIES, {"samples": samples}):
        replies[each.sample_id].append(each)
    outcomes = {row["line"]: try_decode(row["outcome"], Outcome, "its outcome")[0] for row in rows}
    citations = await _read_documents(connection, rows, outcomes)
    answers: dict[int, Answer | Invalid] = {}
    for row in rows:
        if (outcome := outcomes[row["line"]]) is None:
            continue
        of_sample = replies[row["sample"]]
        found = (
            _embed(row, of_sample) if row["pipeline"] == EMBEDDING else _complete(row, outcome, of_sample, citations)
        )
        if found is not None:
            answers[row["line"]] = found
    return answers


async def _read_documents(
    connection: AsyncConnection, rows: Iterable[RowMapping], outcomes: Mapping[int, Outcome | None]
) -> Cited:
    """Return the documents that answers cite, with one statement per corpus."""
    hashes: dict[str | None, set[str]] = defaultdict(set)
    for row in rows:
        if (outcome := outcomes[row["line"]]) is not None and outcome.context:
            hashes[row["corpus"]].update(outcome.context)
    return {
        (corpus, hash_): document
        for corpus, of_corpus in hashes.items()
        for hash_, document in (await corpora.load_documents(connection, corpus, sorted(of_corpus))).items()
    }


def _embed(row: RowMapping, replies: Sequence[Any]) -> Answer | Invalid:
    vectors = [reply.vector for each in replies if isinstance(reply := _REPLY.decode(each.reply), Embedded)]
    request = _TEXTS.decode(row["given"])
    try:
        check_dimensions(request.dimensions, len(vectors[0]) // 4)
    except Invalid as error:
        return error
    return Answer(body=to_body(row["model"], vectors, request.encoding))


def _complete(row: RowMapping, outcome: Outcome, replies: Sequence[Any], cited: Cited) -> Answer | None:
    """Return the completion; None if nothing was written and nothing refused."""
    texts = [reply.text for each in replies if isinstance(reply := _REPLY.decode(each.reply), Generated)]
    answer = find_answering_text(texts, outcome, find_extractor(try_decode_params(row["params"], "")[0]))
    if answer is None and outcome.refusal is None:
        return None
    made = ChatCompletion(
        id=f"chatcmpl-{row['job'].hex}-{row['ordinal']}",
        created=int(row["ended_at"].timestamp()),
        model=row["model"],
        text=answer or "",
        finish_reason="length" if outcome.truncated else "stop",
        prompt_tokens=sum(each.prompt_tokens or 0 for each in replies),
        completion_tokens=sum(each.completion_tokens or 0 for each in replies),
        extension=_extend(row, outcome, cited),
    )
    return Answer(body=made.body(), prompt_tokens=made.prompt_tokens, completion_tokens=made.completion_tokens)


def _extend(row: RowMapping, outcome: Outcome, cited: Cited) -> dict[str, Any]:
    """Return the field `mathrag`: the address of the provenance, and what a pipeline answers beside the text."""
    extension = {"job": str(row["job"]), "url": f"/v1/jobs/{row['job']}/samples/{row['ordinal']}"}
    if row["pipeline"] == CONVERSATION:
        return extension
    beside = {
        "context": [cited[row["corpus"], hash_] for hash_ in outcome.context],
        "decisions": outcome.trace.decisions,
        "answer": outcome.answer,
        "extraction": outcome.extraction,
        "refusal": outcome.refusal,
    }
    return extension | {name: beside[name] for name in ANSWER_FIELDS}
