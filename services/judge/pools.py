"""Pools of processes for verification, programs and mining."""

import asyncio
import os
import tempfile
from pathlib import Path

import msgspec

from shared.calls import Mining
from shared.processes.children import ChildPool
from shared.replies import Executed, Failure, FailureKind, Mined, Rule, Verified


class VerificationPool(ChildPool):
    """Verifies at most `size` documents at once, each for at most `deadline_s` seconds of processor time.

    SymPy itself does not limit its time.
    """

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


class ProgramPool(ChildPool):
    """Runs at most `size` programs at once, each for at most `deadline_s` seconds of processor time."""

    def __init__(self, size: int, deadline_s: float) -> None:
        # Nothing of the worker's environment but what Python needs to start; sets have the same order in every process.
        kept = {name: os.environ[name] for name in ("LD_LIBRARY_PATH", "PYTHONPATH") if name in os.environ}
        super().__init__(
            "services.judge.program_process", "interpreter", FailureKind.PROGRAM_TIMEOUT, size=size,
            deadline_s=deadline_s, environment={**kept, "PYTHONHASHSEED": "0"},
        )  # fmt: skip

    async def execute(self, program: str) -> Executed | Failure:
        """Run a program and return its output; a program that is refused or gives none is a failure that says why.

        Raises:
            RuntimeError: if the pool is closed.
        """
        reply = await self.ask({"program": program})
        return reply if isinstance(reply, Failure) else msgspec.convert(reply, type=Executed | Failure)


MIB = 1 << 20
MAX_BYTES = 256 * MIB
"""Upper bound of one relation's rules, which are stored as one value in the database."""
PROCESS = "services.judge.mining_process"


class MiningPool(ChildPool):
    """Mines at most `size` relations at once, each for at most `deadline_s` seconds of processor time."""

    def __init__(self, size: int, deadline_s: float, memory_mib: int, module: str = PROCESS) -> None:
        """`memory_mib` is the memory of all processes together."""
        self._each_mib = memory_mib // size
        bound = str(self._each_mib * MIB)
        super().__init__(
            module, "miner", FailureKind.MINER_TIMEOUT, size=size, deadline_s=deadline_s, arguments=[bound]
        )

    async def mine(self, graph: Path, relation: str, mining: Mining) -> Mined | Failure:
        """Mine the rules of one relation of the graph in the folder `graph`.

        Raises:
            RuntimeError: if the pool is closed.
        """
        with tempfile.NamedTemporaryFile(dir=graph.parent, prefix="rules-") as file:
            request = {
                "graph": str(graph), "relation": relation, "mining": msgspec.to_builtins(mining), "file": file.name,
            }  # fmt: skip
            reply = await self.ask(request)
            if isinstance(reply, Failure):
                return self._explain(reply, relation)
            if "kind" in reply:
                failure = Failure(kind=FailureKind(reply["kind"]), detail=reply["detail"])
                return self._explain(failure, relation)
            return await asyncio.to_thread(_read_rules, Path(file.name), relation)

    def _explain(self, failure: Failure, relation: str) -> Failure:
        fewer = "or ask for fewer rules, as with a higher support"
        match failure.kind:
            case FailureKind.OUT_OF_MEMORY:
                detail = (
                    f"mining {relation!r} takes more than {self._each_mib} MiB, its process's part of"
                    f" `workers.mining_mib`; raise that, lower `workers.miners`, {fewer}"
                )
            case FailureKind.MINER_TIMEOUT:
                detail = (
                    f"mining {relation!r} takes more than {self.deadline_s:g} s of the processor; raise"
                    f" `workers.mine_deadline_s`, {fewer}"
                )
            case _:
                return failure
        return Failure(kind=failure.kind, detail=detail)


def _read_rules(file: Path, relation: str) -> Mined | Failure:
    """Read the mined rules; slow enough for a thread, since a relation may have 100,000 rules."""
    if (size := file.stat().st_size) > MAX_BYTES:
        detail = (
            f"the rules of {relation!r} take {size // MIB} MiB, and {MAX_BYTES // MIB} MiB can be kept;"
            " ask for fewer rules, as with a higher support"
        )
        return Failure(kind=FailureKind.REFUSED, detail=detail)
    return Mined(rules=msgspec.json.decode(file.read_bytes(), type=tuple[Rule, ...]))
