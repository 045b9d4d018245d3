"""How a command line names one thing, and what a shell may offer for it."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from mathrag.client import catalog, graphs, jobs, texts
from mathrag.client.client import Client
from mathrag.client.request import Request

OFFERED_S = 1.0
"""Longest that a shell waits for names; without an answer it offers none."""


def _jobs(incomplete: str) -> list[tuple[str, str]]:
    """Ids and names of the newest jobs, each with what it is."""
    try:
        with Client(patience_s=OFFERED_S) as client:
            found = client.send(jobs.listed(limit=100))["data"]
    except Exception:  # noqa: BLE001 - whatever is wrong, a shell that is being typed in is no place to say it
        return []
    offered = {job[key]: f"{job['pipeline']}, {job['state']}" for job in found for key in ("name", "id")}
    return [(name, said) for name, said in offered.items() if name.startswith(incomplete)]


def _named(request: Request[Any]) -> Callable[[str], list[str]]:
    """What a shell offers of a list: the names that begin like what was typed."""

    def offered(incomplete: str) -> list[str]:
        try:
            with Client(patience_s=OFFERED_S) as client:
                found = client.send(request)
        except Exception:  # noqa: BLE001 - as for jobs
            return []
        rows = found["data"] if isinstance(found, dict) else found
        return [row["name"] for row in rows if row["name"].startswith(incomplete)]

    return offered


DataDir = Annotated[Path | None, typer.Option("--data-dir", help="Of the stack. [default: .mathrag]")]
REFERENCE = "Name, id, or the first characters of the id (four or more)."
JobReference = Annotated[str, typer.Argument(metavar="JOB", help=REFERENCE, autocompletion=_jobs)]
Jobs = Annotated[list[str], typer.Argument(metavar="JOB...", help=REFERENCE, autocompletion=_jobs)]
Baseline = Annotated[
    str | None,
    typer.Option(metavar="JOB", help="What each is held against; else each against each.", autocompletion=_jobs),
]
Measure = Annotated[
    str | None, typer.Option(help="`exact`, `score`, or `answer@K`, such as answer@10. [default: accuracy]")
]
Dataset = Annotated[str, typer.Argument(metavar="NAME", autocompletion=_named(texts.listed("datasets")))]
Corpus = Annotated[str, typer.Argument(metavar="NAME", autocompletion=_named(texts.listed("corpora")))]
Graph = Annotated[str, typer.Argument(metavar="NAME", autocompletion=_named(graphs.listed()))]
DatasetOption = Annotated[
    str, typer.Option("--dataset", help="Dataset to run on.", autocompletion=_named(texts.listed("datasets")))
]
CorpusOption = Annotated[
    str | None, typer.Option("--corpus", help="Corpus to search.", autocompletion=_named(texts.listed("corpora")))
]
_PIPELINE = typer.Option(
    "--pipeline", help="How it is answered; see `mathrag pipeline`.", autocompletion=_named(catalog.pipelines())
)
PipelineOption = Annotated[str | None, _PIPELINE]
RequiredPipelineOption = Annotated[str, _PIPELINE]
