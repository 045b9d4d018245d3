"""`mathrag model` and `mathrag pipeline`: what a job may name."""

import typer

from mathrag.cli.failures import reported
from mathrag.cli.output import AsJson, print_json, table
from mathrag.client import catalog
from mathrag.client.client import Client

model = typer.Typer()
pipeline = typer.Typer()


@model.command("list")
def list_models(as_json: AsJson = False) -> None:
    """Models as configured, and whether a guard has registered them."""
    with reported(as_json=as_json), Client() as client:
        found = client.send(catalog.models())
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
        table(("NAME", "DRIVER", "DEFAULT FOR", "CONTEXT", "MIB", "REGISTERED", "DIGEST"), rows)
        for each in found:
            if each["warning"]:
                typer.echo(f"warning: {each['name']}: {each['warning']}", err=True)


@pipeline.command("list")
def list_pipelines(as_json: AsJson = False) -> None:
    """Pipelines, each with what it does."""
    with reported(as_json=as_json), Client() as client:
        found = client.send(catalog.pipelines())
        if as_json:
            print_json(found)
        else:
            table(
                ("NAME", "HASH", "WHAT IT DOES"), ((each["name"], each["hash"][:12], each["summary"]) for each in found)
            )
            for file in sorted({change["file"] for each in found for change in each["changed"]}):
                typer.echo(f"{file} was edited after the service had imported it: restart the service to run it")
