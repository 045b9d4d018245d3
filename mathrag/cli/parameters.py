"""Parameters as they are written on a command line: `gate.tau=0.3`."""

from typing import Annotated, Any

import msgspec
import typer

from mathrag.client.errors import Failed

Set = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A parameter, such as gate.tau=0.3.")]
Model = Annotated[
    list[str] | None, typer.Option("--model", metavar="ROLE=NAME", help="A model, such as judge=world-judge.")
]


def parameters(settings: list[str], option: str = "--set") -> dict[str, Any]:
    """`["gate.tau=0.3"]` as {"gate": {"tau": 0.3}}; a value that is no JSON is text."""
    tree: dict[str, Any] = {}
    for setting in settings:
        key, value = pair(setting, option)
        *parents, leaf = key.split(".")
        branch = tree
        for parent in parents:
            branch = branch.setdefault(parent, {})
            if not isinstance(branch, dict):
                raise Failed("usage", f"{option} {setting}: `{parent}` has a value already")
        branch[leaf] = _value(value)
    return tree


def _value(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def pair(text: str, option: str) -> tuple[str, str]:
    """`key=value`, taken apart.

    Raises:
        Failed: it is not of this form.
    """
    key, separator, value = text.partition("=")
    if not separator or not all(key.split(".")):
        raise Failed("usage", f"{option} {text}: write it as key=value")
    return key, value
