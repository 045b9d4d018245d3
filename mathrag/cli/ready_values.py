"""Values of options that need no conversion: typer converts by pydantic, whose import takes longer than a command."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

WHOLE = re.compile(r"-?[0-9]{1,9}")


class ReadyValues:
    """Takes the place of typer's converter for one parameter, and asks that one where there is something to convert."""

    def __init__(self, converter: Callable[[], Any]) -> None:
        self._converter = converter

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """`value` as the type that the parameter has."""
        wanted = param.type_descriptor.annotation
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        if type(value) is wanted:
            return value
        if wanted is Path and type(value) is str:
            return Path(value)
        if wanted is int and type(value) is str and _is_plain(value, param.type_descriptor.parameter_info):
            return int(value)
        if wanted == list[str] and isinstance(value, (list, tuple)):
            return list(value)
        return self._converter().coerce(value, param=param, ctx=ctx)


def _is_plain(value: str, limits: Any) -> bool:
    """Whether this is a whole number within the option's limits; typer says what is wrong with any other."""
    if not WHOLE.fullmatch(value):
        return False
    least, most = limits.min, limits.max
    return (least is None or least <= int(value)) and (most is None or int(value) <= most)


class ReadyParameters:
    """For a command class: its parameters convert only what must be converted."""

    def get_params(self, ctx: Any) -> list[Any]:
        """All parameters, `--help` with them."""
        parameters: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for parameter in parameters:
            if "get_runtime_param" not in vars(parameter):
                ready = ReadyValues(parameter.get_runtime_param)
                parameter.get_runtime_param = lambda ready=ready: ready
        return parameters
