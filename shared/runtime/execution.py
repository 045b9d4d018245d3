"""The port between the worker and whoever executes a role's calls."""

from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple, Protocol

from shared.runtime.answers import Answered
from shared.runtime.claims import Claimed


class Lapse(NamedTuple):
    """The call's model server died under it: a suspect."""

    call_id: int


class Release(NamedTuple):
    """The call was aborted to free the device: it goes back uncharged."""

    call_id: int


class Wait(NamedTuple):
    """What the call needs is away, for this call as for every other: it goes back uncharged and waits."""

    call_id: int
    what: str
    """What is away, as in "Elasticsearch at 127.0.0.1:9200"."""
    said: str
    """How it was found to be away."""


Ended = Answered | Lapse | Release | Wait
"""What became of a call that was sent, or was not."""


class Executor(Protocol):
    """Executes the calls of a role.

    Raises while iterating:
        NotGranted: nothing was sent; all calls go back uncharged.
        Broken: whoever ran the calls is gone; the unanswered ones are suspects.
    """

    def run(self, calls: Sequence[Claimed], epoch: int | None) -> AsyncIterator[Ended]:
        """Replies as they come."""
        ...
