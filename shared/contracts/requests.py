"""A call as it is hashed, stored and executed.

A request holds everything that determines the reply and nothing else: texts by hash, no database ids, no job.
"""

from typing import Literal

import msgspec

from shared.contracts import canonical
from shared.contracts.calls import RELEASE_0_1, Decoding, Duplicates, RuleChoice
from shared.contracts.grading import Rules
from shared.contracts.mining import Mining


class DocumentRef(msgspec.Struct, frozen=True):
    """A document in a request: by hash, rendered by the worker that executes it."""

    doc: str


SlotValue = str | DocumentRef | list[DocumentRef]


class Request(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The content of a call. `draw` and `nonce` tell apart what must be computed more than once."""

    role: str
    model: str
    """Hash of the model's row (hex): backend, digest, version, options."""
    template: str = ""
    """`id@hash` of the prompt template."""
    values: dict[str, SlotValue | None] = {}
    decoding: Decoding | None = None
    k: int = 0
    skip: int = 0
    hypothetical: tuple[str, ...] = ()
    duplicates: Duplicates = RELEASE_0_1
    item: str = ""
    gold: str = ""
    logprobs: int = 0
    modulus: int = 0
    rules: Rules | None = None
    """How an answer is graded; None: as `MATH` says."""
    mining: Mining | None = None
    """Which miner, and its limits."""
    choice: RuleChoice | None = None
    """Which rules of a bank are taken."""
    side: Literal["", "object", "subject"] = ""
    phrases: str = ""
    draw: int = 0
    nonce: str = ""

    @property
    def key(self) -> bytes:
        """SHA-256 over the canonical bytes: the call's identity."""
        return canonical.digest(self)


def seed_of(key: bytes) -> int:
    """The sampling seed that goes to the model: the first 31 bits of the key, the same in every job."""
    return int.from_bytes(key[:4]) >> 1
