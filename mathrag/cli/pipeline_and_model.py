"""`mathrag model` and `mathrag pipeline`: list what jobs can use."""

import typer

from mathrag.cli.failures import report_errors
from mathrag.cli.output import AsJson, print_json, print_table
from mathrag.client import service
from mathrag.client.client import Client

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
