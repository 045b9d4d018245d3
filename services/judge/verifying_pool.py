"""Verification on processes that can be killed: SymPy knows no limit of time."""

from shared.contracts.replies import Failure, FailureKind, Verified
from shared.processes.child_pool import ChildPool


class VerifyingPool(ChildPool):
    """At most `size` documents are verified at once, each within `deadline_s` seconds or not at all."""

    def __init__(self, size: int, deadline_s: float) -> None:
        module = "services.judge.verifying_process"
        super().__init__(module, "verifier", FailureKind.VERIFIER_TIMEOUT, size=size, deadline_s=deadline_s)

    async def verify(self, text: str, modulus: int) -> Verified | Failure:
        """What the equations of `text` are worth.

        Raises:
            RuntimeError: if the pool is closed.
        """
        reply = await self.ask({"text": text, "modulus": modulus})
        return reply if isinstance(reply, Failure) else Verified(**reply)
