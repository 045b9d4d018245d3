"""The child process of `MiningPool`, which mines relations one at a time and is killed when it takes too long.

It reads {"graph", "relation", "mining", "file"}, writes the rules to the file, since they are too long for a line, and
answers {"rules": their number}, or {"kind", "detail"} of a failure.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from shared.calls import Mining
from shared.processes.children import serve
from shared.replies import FailureKind

THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""Variables that limit each process to one thread: more would take other cores and address space."""


def load() -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Import the libraries and return the function that mines, which keeps the last graph open."""
    os.environ.update(dict.fromkeys(THREADS, "1"))
    from services.judge import graphs
    from shared.rules import miners

    opened: dict[str, Any] = {}

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        folder = request["graph"]
        mining = msgspec.convert(request["mining"], Mining)
        try:
            if folder not in opened:
                opened.clear()
                opened[folder] = graphs.map_graph(Path(folder))
            rules = miners.mine(opened[folder], request["relation"], mining)
            Path(request["file"]).write_bytes(msgspec.json.encode(rules))
        except MemoryError:
            return {"kind": FailureKind.OUT_OF_MEMORY, "detail": ""}
        except ValueError as error:
            return {"kind": FailureKind.REFUSED, "detail": str(error)}
        return {"rules": len(rules)}

    return answer


if __name__ == "__main__":
    serve(int(sys.argv[1]), float(sys.argv[2]), load, int(sys.argv[3]))
