"""Convert plain option values without pydantic, which typer uses: its import takes longer than a command."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from mathrag.cli.placeholders import set_placeholder

WHOLE = re.compile(r"-?[0-9]{1,9}")


class ReadyValues:
    """Replaces typer's converter of one parameter, and calls it only for values that need more than a simple cast."""

    def __init__(self, converter: Callable[[], Any]) -> None:
        self._converter = converter

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Convert `value` to the type of the parameter."""
        wanted = param.type_descriptor.annotation
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        if type(value) is wanted:
            return value
        if get_origin(wanted) is Literal and value in get_args(wanted):
            return value
        if wanted is Path and type(value) is str:
            return Path(value)
        if wanted is int and type(value) is str and _is_plain(value, param.type_descriptor.parameter_info):
            return int(value)
        if wanted == list[str] and isinstance(value, (list, tuple)):
            return list(value)
        return self._converter().coerce(value, param=param, ctx=ctx)


def _is_plain(value: str, limits: Any) -> bool:
    """Return True for a whole number within the option's limits; typer reports any other value."""
    if not WHOLE.fullmatch(value):
        return False
    least, most = limits.min, limits.max
    return (least is None or least <= int(value)) and (most is None or int(value) <= most)


class ReadyParameters:
    """Mix-in for command classes that gives every parameter a `ReadyValues` converter and a placeholder."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return all parameters, including `--help`."""
        parameters: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for parameter in parameters:
            if "get_runtime_param" not in vars(parameter):
                set_placeholder(parameter)
                ready = ReadyValues(parameter.get_runtime_param)
                parameter.get_runtime_param = lambda ready=ready: ready
        return parameters
