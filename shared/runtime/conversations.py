"""Submit conversations to the generator: they are stored together with their job in one transaction."""

import secrets
import uuid
from collections.abc import Sequence

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.contracts import canonical
from shared.contracts.calls import MAX_QUESTION
from shared.contracts.samples import Conversation
from shared.runtime.drafting import Drafting
from shared.runtime.submission import Submission
from shared.runtime.submit import insert
from shared.settings import Settings

STORE = text("""
    INSERT INTO given (job, ordinal, repeat, content)
    SELECT CAST(:job AS uuid), c.place - 1, 0, c.content
    FROM unnest(CAST(:contents AS bytea[])) WITH ORDINALITY c(content, place)""")
LARGEST_DRAW = 2**62


def choose_draw(temperature: float, seed: int | None) -> int:
    """Return the draw of an answer: 0 for greedy decoding, otherwise the seed, or a random number without one."""
    if not temperature:
        return 0
    return secrets.randbelow(LARGEST_DRAW) + 1 if seed is None else seed


def question_for(conversation: Conversation) -> str:
    """Return what stands for the conversation in a dataset: its last message, cut to the length of a question."""
    return conversation.messages[-1].content[:MAX_QUESTION]


async def submit_conversations(
    connection: AsyncConnection, settings: Settings, submission: Submission, conversations: Sequence[Conversation]
) -> uuid.UUID:
    """Insert a job of the pipeline `conversation`; its dataset has one item per conversation, in order.

    Raises:
        NotFound, Invalid, Conflict, TooLarge, TooMany: as `submit_once`.
    """
    job = uuid.uuid4()
    await connection.execute(STORE, {"job": job, "contents": [canonical.encode(each) for each in conversations]})
    draft = await Drafting(connection, settings).draft(msgspec.structs.replace(submission, job=job))
    return (await insert(connection, settings, [draft]))[0]
