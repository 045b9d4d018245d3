"""Summarise the reply of a call in a few words."""

import msgspec

from shared.contracts.replies import Failure, Generated, Graded, Rated, Reply, Retrieved, Scored

WORDS = {True: "right", False: "wrong", None: "none"}


def summarise_reply(reply: Reply | None, completion_tokens: int | None) -> str:
    """Return for example "10 documents", "rating 4" or "31 tokens"."""
    match reply:
        case None:
            return "no reply was used"
        case Failure():
            return f"{reply.kind.value}: {reply.detail}"
        case Retrieved():
            return f"{len(reply.hits)} documents"
        case Rated():
            return f"rating {reply.rating}"
        case Graded():
            return f"math-verify {WORDS[reply.math_verify]}, strict {WORDS[reply.strict]}"
        case Generated():
            ended = f", cut off: {reply.truncated_by or 'length'}" if reply.truncated else ""
            return f"{completion_tokens or '?'} tokens{ended}"
        case Scored():
            return f"{len(reply.scores)} scores"
        case _:
            return ", ".join(f"{name} {value}" for name, value in msgspec.structs.asdict(reply).items())
