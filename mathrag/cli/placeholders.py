"""Placeholders in help texts: a word in capitals for each value, such as NAME, FILE or N; flags have none."""

from pathlib import Path
from typing import Any

WORDS = {int: "N", float: "NUMBER", Path: "FILE"}
"""Placeholders of options that name none themselves; a text takes the last word of the option: --dataset DATASET."""


def set_placeholder(parameter: Any) -> None:
    """Replace typer's type names such as `<int range>` in the help, the usage and the errors of a parameter."""
    if parameter.param_type_name == "argument":
        parameter.metavar = name_argument(parameter)
    parameter.display_type_rich = lambda **_: describe_value(parameter)


def name_argument(argument: Any) -> str:
    """Return the name of an argument in capitals, such as JOB."""
    return str(argument.metavar or argument.name.upper())


def describe_value(parameter: Any) -> str:
    """Return the placeholder of an option, or the choices of a parameter; "" for flags and for other arguments."""
    kind = parameter.type_descriptor
    if kind.is_choice and not (parameter.param_type_name == "option" and parameter.metavar):
        return "|".join(str(getattr(choice, "value", choice)) for choice in kind.choices)
    if parameter.param_type_name == "argument" or parameter.is_flag:
        return ""
    if parameter.metavar:
        return str(parameter.metavar)
    value = kind.annotation.__args__[0] if kind.is_list else kind.annotation
    return WORDS.get(value) or parameter.opts[0].rpartition("-")[2].upper()
