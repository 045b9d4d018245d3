"""Mining on processes that can be killed, each within its part of the memory that mining may take."""

import asyncio
import tempfile
from pathlib import Path

import msgspec

from shared.contracts.mining import Mining
from shared.contracts.replies import Failure, FailureKind, Mined
from shared.contracts.rules import Rule
from shared.processes.child_pool import ChildPool

MIB = 1 << 20
MOST_BYTES = 256 * MIB
"""Of one relation's rules: a reply is one value of the database."""
PROCESS = "services.judge.mining_process"


class MiningPool(ChildPool):
    """At most `size` relations are mined at once, each within `deadline_s` seconds of the processor or not at all."""

    def __init__(self, size: int, deadline_s: float, memory_mib: int, module: str = PROCESS) -> None:
        """`memory_mib` is what all processes may take together."""
        self._each_mib = memory_mib // size
        bound = str(self._each_mib * MIB)
        super().__init__(
            module, "miner", FailureKind.MINER_TIMEOUT, size=size, deadline_s=deadline_s, arguments=[bound]
        )

    async def mine(self, graph: Path, relation: str, mining: Mining) -> Mined | Failure:
        """The rules of one relation of the graph in that folder.

        Raises:
            RuntimeError: if the pool is closed.
        """
        with tempfile.NamedTemporaryFile(dir=graph.parent, prefix="rules-") as file:
            request = {
                "graph": str(graph), "relation": relation, "mining": msgspec.to_builtins(mining), "file": file.name,
            }  # fmt: skip
            reply = await self.ask(request)
            if isinstance(reply, Failure):
                return self._in_words(reply, relation)
            if "kind" in reply:
                failure = Failure(kind=FailureKind(reply["kind"]), detail=reply["detail"])
                return self._in_words(failure, relation)
            return await asyncio.to_thread(_read, Path(file.name), relation)

    def _in_words(self, failure: Failure, relation: str) -> Failure:
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


def _read(file: Path, relation: str) -> Mined | Failure:
    """In a thread: a relation may have a hundred thousand rules."""
    if (size := file.stat().st_size) > MOST_BYTES:
        detail = (
            f"the rules of {relation!r} take {size // MIB} MiB, and {MOST_BYTES // MIB} MiB can be kept;"
            " ask for fewer rules, as with a higher support"
        )
        return Failure(kind=FailureKind.REFUSED, detail=detail)
    return Mined(rules=msgspec.json.decode(file.read_bytes(), type=tuple[Rule, ...]))
