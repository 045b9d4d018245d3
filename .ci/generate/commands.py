"""The page of all commands, from the command line itself."""

from collections.abc import Iterator
from typing import Any

from links import link_pages
from tables import table
from typer.main import get_command

from mathrag.cli.main import app
from mathrag.cli.placeholders import describe_value, name_argument

PAGE = "reference/cli.md"


def page() -> str:
    """Return every command with its help, arguments and options."""
    return "\n\n".join(_describe(words, command) for words, command in _walk(get_command(app), ("mathrag",)))


def _walk(command: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    names = getattr(command, "commands", None)
    if names is None:
        yield words, command
        return
    context = command.make_context(words[-1], [], resilient_parsing=True)
    for name in names:
        _, inner, _ = command.resolve_command(context, [name])
        yield from _walk(inner, (*words, name))


def _describe(words: tuple[str, ...], command: Any) -> str:
    given = " ".join(_format_argument(each) for each in command.params if not each.opts[0].startswith("-"))
    parts = [f"## {' '.join(words)}", link_pages(command.help or "", PAGE)]
    if given:
        parts.append(f"`{' '.join(words)} {given}`")
    rows = []
    for each in command.params:
        if not getattr(each, "hidden", False):
            is_option = each.opts[0].startswith("-")
            names = (*each.opts, *each.secondary_opts) if is_option else (_format_argument(each),)
            name = ", ".join(f"`{each_name}`" for each_name in names)
            placeholder = describe_value(each)
            value = f" `{placeholder}`" if placeholder else ""
            again = " May be repeated." if each.multiple or each.nargs != 1 else ""
            meaning = link_pages(" ".join((each.help or "").split()), PAGE)
            rows.append((name + value, _format_default(each), meaning + again))
    if rows:
        parts.append(table(("option", "default", "meaning"), iter(rows), PAGE))
    return "\n\n".join(filter(None, parts))


def _format_argument(argument: Any) -> str:
    name = name_argument(argument) + ("..." if argument.nargs != 1 else "")
    return name if argument.required else f"[{name}]"


def _format_default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    value = parameter.default
    if value is None or value is False or callable(value) or value in ((), []):
        return ""
    return f"`{getattr(value, 'value', value)}`"
