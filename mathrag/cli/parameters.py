"""Parse parameters as they are written on a command line: `gate.tau=0.3`."""

from typing import Annotated, Any

import msgspec
import typer

from mathrag.client.errors import Failed

Set = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Parameter, such as gate.tau=0.3.")]
Model = Annotated[
    list[str] | None, typer.Option("--model", metavar="ROLE=NAME", help="Model of a role, such as judge=world-judge.")
]


def parse_parameters(settings: list[str], option: str = "--set") -> dict[str, Any]:
    """Parse `["gate.tau=0.3"]` into {"gate": {"tau": 0.3}}; a value that is not JSON is text.

    Raises:
        Failed: an entry is not KEY=VALUE, or a key has both a value and keys below it.
    """
    tree: dict[str, Any] = {}
    for setting in settings:
        key, value = split_pair(setting, option)
        *parents, leaf = key.split(".")
        branch = tree
        for parent in parents:
            branch = branch.setdefault(parent, {})
            if not isinstance(branch, dict):
                raise Failed("usage", f"{option} {setting}: `{parent}` already has a value")
        branch[leaf] = _parse_value(value)
    return tree


def _parse_value(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def split_pair(text: str, option: str) -> tuple[str, str]:
    """Split `key=value` into key and value.

    Raises:
        Failed: it is not of this form.
    """
    key, separator, value = text.partition("=")
    if not separator or not all(key.split(".")):
        raise Failed("usage", f"{option} {text}: not of the form key=value", hint="write it as key=value")
    return key, value
