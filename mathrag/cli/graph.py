"""`mathrag graph`: knowledge graphs, which are corpora as well."""

from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from mathrag.cli.command_groups import Mutation
from mathrag.cli.output import AsJson, Yes, confirm, print_facts, print_json, print_table, report_errors
from mathrag.cli.references import Graph
from mathrag.cli.uploads import send
from mathrag.client import graphs
from mathrag.client.client import Client
from mathrag.client.uploads import Sources
from shared.ingest import graph_paths
from shared.messages import format_count

graph = typer.Typer(no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="Name of the graph and of its corpus.")]
From = Annotated[
    Path, typer.Option("--from", help="Tab-separated file, or folder of OpenKE or TLogic; may be gzipped.")
]
Splits = Annotated[list[str], typer.Option("--split", help="Split of the folder; separate several by commas.")]
Phrases = Annotated[
    Path | None,
    typer.Option(help="File of tab-separated lines: relation, its phrase, and optionally its inverse's phrase."),
]
Inverse = Annotated[bool, typer.Option("--inverse", help="Also make a document of each fact's inverse.")]


@graph.command("create")
def create(
    name: Name,
    source: From,
    split: Splits = ["train"],  # noqa: B006 - typer copies it
    phrases: Phrases = None,
    inverse: Inverse = False,
    as_json: AsJson = False,
) -> None:
    """Upload facts and index them as documents. Uploading the same again changes nothing."""
    with report_errors(as_json=as_json), Client() as client:
        splits = [part for each in split for part in each.split(",") if part]
        rows = graph_paths.fact_lines(source, splits)
        sources = Sources(chain(graph_paths.phrase_lines(phrases) if phrases else (), rows))
        made = send(client, graphs.upload(sources, name, inverse=inverse), sources)
        if as_json:
            print_json(made)
            return
        repeated = f" ({made['repeated']} repeated facts left out)" if made["repeated"] else ""
        typer.echo(f"graph {name}: {format_count(made['facts'], 'fact')}{repeated}, {_describe_sizes(made)}")
        typer.echo(f"corpus {made['corpus']}: {format_count(made['documents'], 'document')}, indexed")
        _say_next(made)


@graph.command("list")
def list_graphs(as_json: AsJson = False) -> None:
    """List all graphs, newest first."""
    with report_errors(as_json=as_json), Client() as client:
        rows = list(client.all(graphs.list_graphs()))
        if as_json:
            print_json(rows)
        else:
            print_table(("NAME", "FACTS", "ENTITIES", "RELATIONS", "TIMES", "CREATED"), map(_make_row, rows))


@graph.command()
def show(name: Graph, as_json: AsJson = False) -> None:
    """Show a graph: counts, time range, content hash and largest relations."""
    with report_errors(as_json=as_json), Client() as client:
        found = client.send(graphs.get(name))
        if as_json:
            print_json(found)
            return
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
            confirm(f"Delete graph {name} for good?", as_json=as_json)
        deletion = client.send(graphs.delete(name))
        if as_json:
            print_json(deletion)
        else:
            typer.echo(f"Deleted graph {name}; its corpus {deletion['corpus']} stays.")
            typer.echo(f"  next: {deletion['hint']}")


def _make_row(row: graphs.Graph) -> tuple[object, ...]:
    return row["name"], row["facts"], row["entities"], row["relations"], _describe_times(row), row["created_at"][:19]


def _describe_times(found: graphs.Graph) -> str | None:
    return None if found["time_unit"] is None else f"{found['first_time']} to {found['last_time']}"


def _describe_sizes(found: graphs.Graph) -> str:
    times = _describe_times(found)
    sizes = [format_count(found["entities"], "entity", "entities"), format_count(found["relations"], "relation")]
    return ", ".join([*sizes, times] if times else sizes)


def _say_next(found: graphs.Graph) -> None:
    """Print the command that mines the graph, with the miner that fits its times."""
    miner = "tlogic" if found["time_unit"] else "amie"
    typer.echo(f"  next: mathrag rules mine --graph {found['name']} --miner {miner} --name {found['name']} --wait")
