"""`mathrag pipeline` and `mathrag plugin`: list pipelines and plug-ins, and create packages for plug-ins."""

import keyword
import re
from importlib import resources
from pathlib import Path
from string import Template
from typing import Annotated, Literal

import typer

from mathrag.cli.api import send_and_print
from mathrag.cli.command_groups import PlainCommand
from mathrag.cli.output import AsJson, print_json, print_table, report_errors
from mathrag.client import service
from mathrag.client.errors import Failed
from mathrag.client.request import Json

pipeline = typer.Typer()
plugin = typer.Typer()


@pipeline.command("list")
def list_pipelines(as_json: AsJson = False) -> None:
    """List the pipelines with a summary of each."""
    send_and_print(service.pipelines(), _print_pipelines, as_json)


def _print_pipelines(found: list[Json]) -> None:
    rows = []
    for each in found:
        plugin = each.get("plugin")
        origin = f"{plugin['distribution']} {plugin['version']}" if plugin else "shipped"
        rows.append((each["name"], origin, each["hash"][:12], each["summary"]))
    print_table(("NAME", "FROM", "HASH", "WHAT IT DOES"), rows)
    for file in sorted({change["file"] for each in found for change in each["changed"]}):
        typer.echo(f"{file} was edited after the service imported it: restart the service to use the new version")


@plugin.command("list")
def list_plugins(as_json: AsJson = False) -> None:
    """List plug-ins that are installed or that jobs wait for, with their states and fixes."""
    send_and_print(service.plugins(), _print_plugins, as_json)


def _print_plugins(found: list[Json]) -> None:
    print_table(("KIND", "NAME", "DISTRIBUTION", "VERSION", "HASH", "STATE"), [
        (each["kind"], each["name"], each["distribution"], each["version"], each["hash"][:12], each["state"])
        for each in found
    ])  # fmt: skip
    for each in found:
        if each["detail"]:
            jobs = f"; jobs wait for it: {', '.join(each['jobs'])}" if each["jobs"] else ""
            typer.echo(f"{each['kind']} {each['name']}: {each['detail']}{jobs}; fix: {each['fix']}")


NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
OBJECTS = {
    "pipeline": "run", "grader": "GRADER", "metric": "METRIC", "driver": "Driver", "reader": "read",
    "embedder": "Embedder", "reranker": "Reranker",
}  # fmt: skip
"""Object in the created package, by the kind of plug-in; the entry point names it."""

Kind = Literal["pipeline", "grader", "metric", "driver", "reader", "embedder", "reranker", "template", "rubric"]
KindArgument = Annotated[
    Kind,
    typer.Argument(metavar="KIND", help="Kind of plug-in; a template or rubric is a single file and needs no package."),
]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name for jobs and settings, such as best-of-three.")]
Out = Annotated[Path, typer.Option(metavar="DIR", help="Folder in which to create the package's folder.")]


@plugin.command("new", cls=PlainCommand)
def new(kind: KindArgument, name: NameArgument, out: Out = Path(), as_json: AsJson = False) -> None:
    """Create a package with a working plug-in and a passing test; nothing is installed."""
    with report_errors(as_json=as_json):
        folder = out / f"mathrag-{name}"
        if kind not in OBJECTS:
            hint = f"put the file into the folder that `plugins.{kind}s` in mathrag.yaml names"
            raise Failed("invalid", f"a {kind} needs no package: it is a single file", hint=hint)
        if not NAME.fullmatch(name) or len(name) > 41 or keyword.iskeyword(name):
            hint = "use lower-case letters, digits and single hyphens, at most 41 characters"
            raise Failed("invalid", f"NAME {name!r} is not a valid plug-in name", hint=hint)
        if folder.exists():
            raise Failed(
                "conflict",
                f"folder `{folder}` already exists",
                hint="choose another name, or another folder with --out",
            )
        module = f"mathrag_{name.replace('-', '_')}"
        words = {"kind": kind, "name": name, "module": module, "object": OBJECTS[kind]}
        templates = {
            "pyproject.toml": "pyproject.toml",
            f"{module}/__init__.py": f"{kind}.py",
            f"tests/test_{module}.py": f"test_{kind}.py",
        }
        for file, template in templates.items():
            source = resources.files("mathrag.cli").joinpath("plugin_templates", f"{template}.txt")
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_text(Template(source.read_text("utf-8")).substitute(words), "utf-8")
        if as_json:
            print_json({"kind": kind, "name": name, "folder": str(folder)})
        else:
            typer.echo(f"{folder}: try it with `cd {folder} && pip install --editable . && pytest`")
