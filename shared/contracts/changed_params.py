"""Find the parameters of a job that differ from the defaults."""

from collections.abc import Iterator
from typing import Any

import msgspec

from shared.contracts.params import Params


def list_changes(given: Any) -> Iterator[tuple[str, Any]]:
    """Yield (dotted path, value) of each parameter that differs from the default of this release."""
    return _list_changes(msgspec.to_builtins(Params()), given, "")


def _list_changes(defaults: Any, given: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in given.items():
        default = defaults.get(name) if isinstance(defaults, dict) else None
        if isinstance(value, dict) and isinstance(default, dict) and default:
            yield from _list_changes(default, value, f"{prefix}{name}.")
        elif value != default:
            yield f"{prefix}{name}", value
