"""The port of a driver: how the guard brings a model up, calls it, and gets rid of it."""

from typing import Protocol

from shared.contracts.architecture import Architecture
from shared.contracts.calls import Decoding
from shared.contracts.guard import ModelAnswer
from shared.runtime.models import ModelIdentity


class Server(Protocol):
    """A model that is up."""

    @property
    def pid(self) -> int | None:
        """The process that was started for it, if one was."""
        ...

    @property
    def alive(self) -> bool:
        """Whether it can still answer."""
        ...

    @property
    def died(self) -> bool:
        """Whether what answered calls has ended, maybe by one of them; what is only not ours any more has not."""
        ...

    @property
    def exit_status(self) -> int | None:
        """How its process ended; negative for a signal, None while it runs or where there is none."""
        ...

    async def complete(self, prompt: str, decoding: Decoding, seed: int, logprobs: int = 0) -> ModelAnswer:
        """Answer one prompt; with so many alternatives of each token, where the server gives them.

        Raises:
            ChatFailed: with a typed kind.
        """
        ...

    async def confirm(self) -> bool:
        """Whether what answers is still the model that was verified, by a look that begins after this call.

        Replies are believed once it has returned true, and go back uncharged once it has returned false: another model
        answers under the name, or nobody can tell. A server that nobody but the guard can change says true at once;
        one that others can change looks through `confirmation.Confirmation`.
        """
        ...

    async def exited(self) -> None:
        """Return when the server has gone away by itself."""
        ...

    async def stop(self) -> None:
        """Free everything; returns when it is free."""
        ...

    def memory_mib(self) -> float | None:
        """Measured memory now, where it can be measured."""
        ...


class Driver(Protocol):
    """A configured model."""

    async def identify(self) -> ModelIdentity:
        """Digest, version and options as they would be served now.

        Raises:
            DriverError: the model is not there.
        """
        ...

    async def take_over(self) -> None:
        """Free what may be left of it where no kernel does that: after a guard that was killed, or of memory that did
        not come back after a stop. Best effort."""
        ...

    async def architecture(self) -> Architecture | None:
        """What its footprint is estimated from; None where the backend tells nothing."""
        ...

    async def warm(self) -> None:
        """Read what the next load will read, while another model is resident. Best effort; nothing by default."""
        ...

    async def start(self, parallel: int | None = None) -> Server:
        """Bring the model up, with as many slots as are configured, or with the fewer that the plan has room for.

        Raises:
            DriverError: it did not come up, and why.
        """
        ...


class DriverError(Exception):
    """A model could not be identified or brought up; the message names the fix."""
