"""The child of `VerificationPool`, which verifies documents one at a time and is killed when it takes too long.

It reads {"text"} and answers {"verified", "refuted", "unknown"}.
"""

import sys
from collections.abc import Callable
from typing import Any

import msgspec

from shared.processes.children import serve


def load() -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Import the libraries and return the function that verifies."""
    import sympy  # noqa: F401  # takes a second

    from shared.mathtext.equations import verify

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        return msgspec.structs.asdict(verify(request["text"]))

    return answer


if __name__ == "__main__":
    serve(int(sys.argv[1]), float(sys.argv[2]), load)
