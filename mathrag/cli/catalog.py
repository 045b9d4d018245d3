"""`mathrag pipeline`, `model` and `plugin`: what jobs can use."""

import keyword
import re
from importlib import resources
from pathlib import Path
from string import Template
from typing import Annotated

import typer

from mathrag.cli.command_groups import PlainCommand
from mathrag.cli.output import AsJson, print_json, print_table, report_errors
from mathrag.client import service
from mathrag.client.client import Client
from mathrag.client.errors import Failed
from shared.shapes import Kind

# `mathrag model` and `mathrag pipeline`: list what jobs can use.

model = typer.Typer()
pipeline = typer.Typer()


@model.command("list")
def list_models(as_json: AsJson = False) -> None:
    """List the configured models, and whether a guard has registered them."""
    with report_errors(as_json=as_json), Client() as client:
        found = client.send(service.models())
        if as_json:
            print_json(found)
            return
        rows = (
            (
                each["name"], each["driver"], ", ".join(each["default_for"]) or None, each["context"],
                each["footprint_mib"], "yes" if each["registered"] else "no", (each["digest"] or "")[:12] or None,
            )
            for each in found
        )  # fmt: skip
        print_table(("NAME", "DRIVER", "DEFAULT FOR", "CONTEXT", "MIB", "REGISTERED", "DIGEST"), rows)
        for each in found:
            if each["warning"]:
                typer.echo(f"warning: {each['name']}: {each['warning']}", err=True)


@pipeline.command("list")
def list_pipelines(as_json: AsJson = False) -> None:
    """List the pipelines with a summary of each."""
    with report_errors(as_json=as_json), Client() as client:
        found = client.send(service.pipelines())
        if as_json:
            print_json(found)
        else:
            print_table(
                ("NAME", "FROM", "HASH", "WHAT IT DOES"),
                ((each["name"], _describe_origin(each), each["hash"][:12], each["summary"]) for each in found),
            )
            for file in sorted({change["file"] for each in found for change in each["changed"]}):
                typer.echo(f"{file} was edited after the service had imported it: restart the service to run it")


def _describe_origin(found: service.Pipeline) -> str:
    """Return the plug-in that brings the pipeline, such as "mathrag-best-of-three 0.1.0", or "shipped"."""
    plugin = found.get("plugin")
    return f"{plugin['distribution']} {plugin['version']}" if plugin else "shipped"


# `mathrag plugin`: list installed plug-ins, and create a package for a new one.

plugin = typer.Typer()

NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
OBJECTS = {
    Kind.PIPELINE: "run",
    Kind.GRADER: "GRADER",
    Kind.DRIVER: "Driver",
    Kind.READER: "read",
    Kind.EMBEDDER: "Embedder",
    Kind.RERANKER: "Reranker",
}
"""The object in the created package that the entry point of each kind names."""

KindArgument = Annotated[Kind, typer.Argument(metavar="KIND", help=f"Kind of plug-in: {', '.join(OBJECTS)}.")]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name for jobs and settings, such as best-of-three.")]
Out = Annotated[Path, typer.Option(help="Folder in which to create the package's folder.")]


@plugin.command("list")
def list_plugins(as_json: AsJson = False) -> None:
    """List plug-ins that are installed or that jobs wait for, with their states and fixes."""
    with report_errors(as_json=as_json), Client() as client:
        found = client.send(service.plugins())
        if as_json:
            print_json(found)
            return
        print_table(
            ("KIND", "NAME", "DISTRIBUTION", "VERSION", "HASH", "STATE"),
            (
                (each["kind"], each["name"], each["distribution"], each["version"], each["hash"][:12], each["state"])
                for each in found
            ),
        )
        for each in found:
            if each["detail"]:
                jobs = f"; jobs wait for it: {', '.join(each['jobs'])}" if each["jobs"] else ""
                typer.echo(f"{each['kind']} {each['name']}: {each['detail']}{jobs}; fix: {each['fix']}")


@plugin.command("new", cls=PlainCommand)
def new(kind: KindArgument, name: NameArgument, out: Out = Path(), as_json: AsJson = False) -> None:
    """Create a package with a plug-in and a test that passes; nothing is installed."""
    with report_errors(as_json=as_json):
        folder = out / f"mathrag-{name}"
        if kind not in OBJECTS:
            hint = f"put a file into the folder `plugins.{kind.value}s` of mathrag.yaml"
            raise Failed("invalid", f"a {kind.value} is a file, not a package", hint=hint)
        if not NAME.fullmatch(name) or len(name) > 41 or keyword.iskeyword(name):
            raise Failed(
                "invalid",
                f"{name!r} is not a valid name of a plug-in",
                hint="use lower-case letters, digits and single hyphens, at most 41 characters",
            )
        if folder.exists():
            raise Failed("conflict", f"`{folder}` exists", hint="choose another name, or another folder with --out")
        for file, text in _render_files(kind, name).items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_text(text, "utf-8")
        if as_json:
            print_json({"kind": kind.value, "name": name, "folder": str(folder)})
        else:
            typer.echo(f"{folder}: try it with `cd {folder} && pip install --editable . && pytest`")


def _render_files(kind: Kind, name: str) -> dict[str, str]:
    """Return the content of the package's files by their paths."""
    module = f"mathrag_{name.replace('-', '_')}"
    words = {"kind": kind.value, "name": name, "module": module, "object": OBJECTS[kind]}
    files = {
        "pyproject.toml": "pyproject.toml",
        f"{module}/__init__.py": f"{kind.value}.py",
        f"tests/test_{module}.py": f"test_{kind.value}.py",
    }
    return {file: _read_template(template).substitute(words) for file, template in files.items()}


def _read_template(name: str) -> Template:
    return Template(resources.files("mathrag.cli").joinpath("plugin_templates", f"{name}.txt").read_text("utf-8"))
