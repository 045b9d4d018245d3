"""Verify documents in processes that can be killed, since SymPy has no time limit."""

from shared.processes.children import ChildPool
from shared.replies import Failure, FailureKind, Verified


class VerificationPool(ChildPool):
    """Verifies at most `size` documents at once, each for at most `deadline_s` seconds of processor time."""

    def __init__(self, size: int, deadline_s: float) -> None:
        module = "services.judge.verification_process"
        super().__init__(module, "verifier", FailureKind.VERIFIER_TIMEOUT, size=size, deadline_s=deadline_s)

    async def verify(self, text: str) -> Verified | Failure:
        """Count the verified, refuted and unknown equations of `text`.

        Raises:
            RuntimeError: if the pool is closed.
        """
        reply = await self.ask({"text": text})
        return reply if isinstance(reply, Failure) else Verified(**reply)
