"""`mathrag prompt`: store, show and compare prompts."""

import tomllib
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from mathrag.cli.api import send_and_print
from mathrag.cli.command_groups import Mutation
from mathrag.cli.output import AsJson, print_table, report_errors
from mathrag.cli.references import PROMPTS
from mathrag.client import prompts
from mathrag.client.errors import Failed
from mathrag.client.request import Json

FIELDS = ("text", "system", "examples")
prompt = typer.Typer()

Reference = Annotated[
    str,
    typer.Argument(
        metavar="PROMPT",
        help="Name of the prompt; short@2 is version 2 of short (default: the newest version).",
        autocompletion=PROMPTS,
    ),
]


@prompt.command(cls=Mutation)
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the prompt.")],
    source: Annotated[
        Path,
        typer.Option(
            "--from", help="TOML or JSON file with text, system and examples; any other file contains only the text."
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Store a prompt as the next version of its name; submitted jobs keep their version."""
    with report_errors(as_json=as_json):
        content = _read_content(source)
    request = prompts.create(
        name, content["text"], system=content.get("system", ""), examples=content.get("examples", ())
    )
    send_and_print(request, _print_created, as_json)


def _read_content(source: Path) -> Json:
    """Read a prompt from a file.

    Raises:
        Failed: the file cannot be read, or it does not contain a prompt.
    """
    hint = 'write text = "...{{context}}Question: {{question}}" into a TOML file'
    try:
        written = source.read_text("utf-8")
        if source.suffix not in (".toml", ".json"):
            return {"text": written}
        content: Any = tomllib.loads(written) if source.suffix == ".toml" else msgspec.json.decode(written)
    except (OSError, UnicodeDecodeError) as error:
        raise Failed("usage", f"{source} cannot be read: {error}", hint="name a text file in UTF-8") from error
    except (tomllib.TOMLDecodeError, msgspec.DecodeError) as error:
        raise Failed("invalid", f"{source}: {error}", hint=hint) from error
    if not isinstance(content, dict) or "text" not in content:
        raise Failed("invalid", f"{source} has no field `text`", hint=hint)
    if unknown := sorted(content.keys() - FIELDS):
        raise Failed(
            "invalid", f"{source} has the unknown field `{unknown[0]}`", hint=f"use only the fields {', '.join(FIELDS)}"
        )
    return content


def _print_created(made: Json) -> None:
    typer.echo(f"prompt {made['name']}, version {made['version']}")
    typer.echo(f"  next: mathrag job submit --prompt generate={made['name']} ...")


@prompt.command("list")
def list_prompts(as_json: AsJson = False) -> None:
    """List the newest version of each prompt, stored and shipped."""
    send_and_print(prompts.list_prompts(), _print_list, as_json)


def _print_list(found: list[Json]) -> None:
    print_table(("NAME", "VERSION", "FROM", "HASH", "EXAMPLES", "TEXT"), [
        (
            each["name"], each["version"], each["origin"], each["hash"][:12], len(each["examples"]) or None,
            msgspec.json.encode(each["text"].strip()[:60]).decode(),
        )
        for each in found
    ])  # fmt: skip


@prompt.command()
def show(reference: Reference, as_json: AsJson = False) -> None:
    """Show a prompt with its system prompt and examples."""
    send_and_print(prompts.get(reference), _print_prompt, as_json)


def _print_prompt(found: Json) -> None:
    typer.echo(f"{found['name']}, version {found['version']}, {found['origin']}, {found['hash'][:12]}")
    if found["system"]:
        typer.echo(f"\n[system]\n{found['system']}")
    for example in found["examples"]:
        shown = "".join(f"\n{part}: {example[part]}" for part in ("context", "question", "answer") if example.get(part))
        typer.echo(f"\n[example]{shown}")
    typer.echo(f"\n[user]\n{found['text']}")


@prompt.command()
def versions(name: Reference, as_json: AsJson = False) -> None:
    """List the versions of a prompt, newest first."""
    send_and_print(prompts.versions(name), _print_versions, as_json)


def _print_versions(found: list[Json]) -> None:
    print_table(("VERSION", "CREATED", "BY", "HASH"), [
        (each["version"], each["created_at"], each["created_by"], each["hash"][:12]) for each in found
    ])  # fmt: skip


@prompt.command()
def diff(left: Reference, right: Reference, as_json: AsJson = False) -> None:
    """Compare two prompts line by line, such as short@1 and short."""
    send_and_print(prompts.differences(left, right), _print_differences, as_json)


def _print_differences(found: Json) -> None:
    left, right = found["left"], found["right"]
    typer.echo(f"- {left['name']}@{left['version']}\n+ {right['name']}@{right['version']}\n")
    signs = {"left": "- ", "right": "+ ", "both": "  ", "gap": "... "}
    typer.echo("\n".join(f"{signs[line['side']]}{line['text']}" for line in found["difference"]["lines"]) or "equal")
