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


class Executor(Protocol):
    """Executes the calls of a role.

    Raises while iterating:
        NotGranted: nothing was sent; all calls go back uncharged.
        Broken: whoever ran the calls is gone; the unanswered ones are suspects.
    """

    def run(self, calls: Sequence[Claimed], epoch: int | None) -> AsyncIterator[Answered | Lapse | Release]:
        """Replies as they come."""
        ...
