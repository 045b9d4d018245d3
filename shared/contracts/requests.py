"""A call as it is hashed, stored and executed.

A request has everything that determines the reply and nothing else: texts by hash, no database ids, no job.
"""

from typing import Literal

import msgspec

from shared.contracts import canonical
from shared.contracts.calls import RELEASE_0_1, Decoding, Duplicates, RuleChoice
from shared.contracts.grading import Rules
from shared.contracts.mining import StoredMining
from shared.contracts.prompts import Message


class DocumentRef(msgspec.Struct, frozen=True):
    """A document in a request: its hash, which the executing worker replaces by the text."""

    doc: str


SlotValue = str | DocumentRef | list[DocumentRef]


class Request(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The content of a call. `draw` and `nonce` distinguish calls that must be computed more than once."""

    role: str
    model: str
    """Hash, in hex, of the model's row: backend, digest, version, options."""
    template: str = ""
    """`id@hash` of the prompt template."""
    values: dict[str, SlotValue | None] = {}
    messages: tuple[Message, ...] = ()
    """A conversation, instead of a template and its values."""
    decoding: Decoding | None = None
    k: int = 0
    skip: int = 0
    hypothetical: tuple[str, ...] = ()
    duplicates: Duplicates = RELEASE_0_1
    item: str = ""
    gold: str = ""
    logprobs: int = 0
    rules: Rules | None = None
    """How an answer is graded; None: by the rules of `MATH`."""
    mining: StoredMining | None = None
    """The miner, and its limits."""
    choice: RuleChoice | None = None
    """How rules of a bank are chosen."""
    side: Literal["", "object", "subject"] = ""
    phrases: str = ""
    draw: int = 0
    nonce: str = ""

    @property
    def key(self) -> bytes:
        """Return the call's identity: the SHA-256 over the canonical bytes."""
        return canonical.digest(self)


def seed_of(key: bytes) -> int:
    """Return the sampling seed for the model: the first 31 bits of the key, the same in every job."""
    return int.from_bytes(key[:4]) >> 1
