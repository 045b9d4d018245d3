"""`mathrag model`: list the models that jobs can use, and connect your own model."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from mathrag.cli.api import send_and_print
from mathrag.cli.command_groups import LocalCommand
from mathrag.cli.output import AsJson, DataDir, print_table, report_errors
from mathrag.client import service
from mathrag.client.request import Json
from mathrag.installation import import_server

model = typer.Typer()


@model.command("list")
def list_models(as_json: AsJson = False) -> None:
    """List the configured models, and whether a guard has registered them."""
    send_and_print(service.models(), _print_models, as_json)


def _print_models(found: list[Json]) -> None:
    print_table(("NAME", "DRIVER", "DEFAULT FOR", "CONTEXT", "MIB", "REGISTERED", "DIGEST"), [
        (
            each["name"], each["driver"], ", ".join(each["default_for"]) or None, each["context"],
            each["footprint_mib"], "yes" if each["registered"] else "no", (each["digest"] or "")[:12] or None,
        )
        for each in found
    ])  # fmt: skip
    for each in found:
        if each["warning"]:
            typer.echo(f"warning: {each['name']}: {each['warning']}", err=True)


What = Annotated[
    str | None,
    typer.Argument(
        metavar="MODEL",
        help="Tag of an Ollama model, a GGUF file, or an address such as https://models.example.org/v1.",
    ),
]
RoleOption = Annotated[
    Literal["both", "generate", "judge"],
    typer.Option(help="Default role of the model: write answers (generate), rate documents (judge), or both."),
]
Served = Annotated[str | None, typer.Option("--model", help="Name of the model, if the address serves several.")]
ApiKeyEnv = Annotated[
    str | None, typer.Option(metavar="VARIABLE", help="Environment variable that holds the API key of the address.")
]
Folder = Annotated[Path | None, typer.Option(metavar="DIR", help="Additional folder to search for GGUF files.")]
OllamaServer = Annotated[
    str | None,
    typer.Option("--ollama", metavar="URL", help="Address of the Ollama server (default: http://127.0.0.1:11434)."),
]
Untried = Annotated[bool, typer.Option("--untried", help="Add the model without testing it with a prompt.")]


@model.command("tune", cls=LocalCommand)
def tune(
    name: Annotated[str, typer.Argument(help="Name of a configured model.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Measure, but do not change the settings file.")] = False,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Measure how many calls at once a model answers fastest, and write that number into the settings file.

    It takes about a minute with a small model, and needs the model's device for itself: stop the stack first. Jobs
    continue when it starts again.
    """
    with report_errors(as_json=as_json, needs="mathrag-gate[embedded]"):
        tuning = import_server("mathrag_gate.cli.tuning", "mathrag-gate[embedded]")
        tuning.tune(name, write=not dry_run, data_dir=data_dir, as_json=as_json)


@model.command("connect", cls=LocalCommand)
def connect(
    what: What = None,
    role: RoleOption = "both",
    served: Served = None,
    api_key_env: ApiKeyEnv = None,
    folder: Folder = None,
    ollama: OllamaServer = None,
    untried: Untried = False,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Connect your own model: test it with one prompt, and add it to the settings file.

    Without an argument, the command lists the Ollama models and GGUF files that it finds on this machine. The trial
    starts a temporary stack; it is skipped while your stack runs.
    """
    with report_errors(as_json=as_json, needs="mathrag-gate[embedded]"):
        connecting = import_server("mathrag_gate.cli.connecting", "mathrag-gate[embedded]")
        if what is None:
            connecting.print_models(folder, ollama, as_json=as_json)
        else:
            connecting.connect(
                what, role, served=served, api_key_env=api_key_env, ollama=ollama, untried=untried, data_dir=data_dir,
                as_json=as_json,
            )  # fmt: skip
