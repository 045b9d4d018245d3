"""`mathrag graph`: upload, inspect and delete knowledge graphs; each is also a corpus."""

from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from mathrag.cli.api import list_and_print, send_and_print
from mathrag.cli.command_groups import Mutation
from mathrag.cli.output import AsJson, Yes, confirm, print_facts, print_json, report_errors
from mathrag.cli.references import Graph
from mathrag.cli.uploads import Splits, send, split_names
from mathrag.client import graphs
from mathrag.client.client import Client
from mathrag.client.request import Json
from mathrag.client.uploads import Sources
from mathrag.messages import format_count
from mathrag.reading import graph_paths

graph = typer.Typer(no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="Name of the graph and of its corpus.")]
From = Annotated[
    Path,
    typer.Option("--from", metavar="PATH", help="Tab-separated file, or folder of OpenKE or TLogic; may be gzipped."),
]
Phrases = Annotated[
    Path | None,
    typer.Option(help="File with tab-separated lines: relation, its phrase, and optionally the phrase of its inverse."),
]
Inverse = Annotated[bool, typer.Option("--inverse", help="Also make a document from the inverse of each fact.")]


@graph.command("create")
def create(
    name: Name,
    source: From,
    split: Splits = ["train"],  # noqa: B006 - typer copies it
    phrases: Phrases = None,
    inverse: Inverse = False,
    as_json: AsJson = False,
) -> None:
    """Upload facts and index them as documents. Uploading the same facts again changes nothing."""
    with report_errors(as_json=as_json), Client() as client:
        rows = graph_paths.fact_lines(source, split_names(split))
        sources = Sources(chain(graph_paths.phrase_lines(phrases) if phrases else (), rows))
        made = send(client, graphs.upload(sources, name, inverse=inverse), sources)
        if as_json:
            print_json(made)
            return
        repeated = f" ({made['repeated']} repeated facts left out)" if made["repeated"] else ""
        sizes = [format_count(made["entities"], "entity", "entities"), format_count(made["relations"], "relation")]
        described = ", ".join(filter(None, [*sizes, _describe_times(made)]))
        typer.echo(f"graph {name}: {format_count(made['facts'], 'fact')}{repeated}, {described}")
        typer.echo(f"corpus {made['corpus']}: {format_count(made['documents'], 'document')}, indexed")
        _say_next(made)


@graph.command("list")
def list_graphs(as_json: AsJson = False) -> None:
    """List all graphs, newest first."""

    def make_row(found: Json) -> tuple[object, ...]:
        counts = (found["facts"], found["entities"], found["relations"])
        return found["name"], *counts, _describe_times(found), found["created_at"][:19]

    head = ("NAME", "FACTS", "ENTITIES", "RELATIONS", "TIMES", "CREATED")
    list_and_print(graphs.list_graphs(), head, make_row, as_json)


@graph.command()
def show(name: Graph, as_json: AsJson = False) -> None:
    """Show a graph: counts, time range, content hash and largest relations."""
    send_and_print(graphs.get(name), _print_graph, as_json)


def _print_graph(found: Json) -> None:
    typer.echo(found["name"])
    print_facts((key, found[key]) for key in ("facts", "entities", "relations"))
    largest = ", ".join(f"{each['relation']} {each['facts']}" for each in found["largest"])
    print_facts([("times", _describe_times(found)), ("largest", largest)])
    print_facts((key, found[key]) for key in ("corpus", "hash", "created_at"))
    _say_next(found)


@graph.command(cls=Mutation)
def delete(name: Graph, yes: Yes = False, as_json: AsJson = False) -> None:
    """Delete a graph that no rule bank was mined from; its corpus is kept."""
    with report_errors(as_json=as_json), Client() as client:
        if not (yes or client.shows):
            confirm(f"Permanently delete graph {name}?", as_json=as_json)
        deletion = client.send(graphs.delete(name))
        if as_json:
            print_json(deletion)
        else:
            typer.echo(f"Deleted graph {name}; its corpus {deletion['corpus']} is kept.")
            typer.echo(f"  next: {deletion['hint']}")


def _describe_times(found: Json) -> str | None:
    return None if found["time_unit"] is None else f"{found['first_time']} to {found['last_time']}"


def _say_next(found: Json) -> None:
    """Print the command that mines the graph, with the miner that fits its times."""
    miner = "tlogic" if found["time_unit"] else "amie"
    typer.echo(f"  next: mathrag rules mine --graph {found['name']} --miner {miner} --name {found['name']} --wait")
