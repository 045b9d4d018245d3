"""Which parameters of a job are not as they would be by themselves."""

from collections.abc import Iterator
from typing import Any

import msgspec

from shared.contracts.params import Params


def changed(given: Any) -> Iterator[tuple[str, Any]]:
    """(dotted path, value) of what is not as this release has it by default."""
    return _changed(msgspec.to_builtins(Params()), given, "")


def _changed(defaults: Any, given: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in given.items():
        default = defaults.get(name) if isinstance(defaults, dict) else None
        if isinstance(value, dict) and isinstance(default, dict) and default:
            yield from _changed(default, value, f"{prefix}{name}.")
        elif value != default:
            yield f"{prefix}{name}", value
