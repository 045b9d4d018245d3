"""Arguments and options that name a job, dataset, corpus, graph or pipeline, with shell completion."""

from collections.abc import Callable
from typing import Annotated, Any

import msgspec
import typer

from mathrag.client import graphs, jobs, prompts, service, texts
from mathrag.client.client import Client
from mathrag.client.errors import Failed
from mathrag.client.request import Request

OFFERED_S = 1.0
"""Longest time in seconds that a completion waits for names; after that it offers none."""


def _complete_jobs(incomplete: str) -> list[tuple[str, str]]:
    """Return completions: ids and names of the newest jobs, with their pipelines and states."""
    try:
        with Client(timeout_s=OFFERED_S) as client:
            found = client.send(jobs.list_jobs().with_limit(100))["data"]
    except Exception:  # noqa: BLE001 - an error message would garble the line that is being typed
        return []
    complete = {job[key]: f"{job['pipeline']}, {job['state']}" for job in found for key in ("name", "id")}
    return [(name, description) for name, description in complete.items() if name.startswith(incomplete)]


def _complete_names_of(request: Request[Any]) -> Callable[[str], list[str]]:
    """Return a completion function that offers the listed names which start with the typed text."""

    def complete(incomplete: str) -> list[str]:
        try:
            with Client(timeout_s=OFFERED_S) as client:
                found = client.send(request)
        except Exception:  # noqa: BLE001 - as for jobs
            return []
        rows = found["data"] if isinstance(found, dict) else found
        return [row["name"] for row in rows if row["name"].startswith(incomplete)]

    return complete


REFERENCE = "Job: name, id, or the first characters of the id (four or more)."
JobReference = Annotated[str, typer.Argument(metavar="JOB", help=REFERENCE, autocompletion=_complete_jobs)]
Jobs = Annotated[list[str], typer.Argument(metavar="JOB", help=REFERENCE, autocompletion=_complete_jobs)]
OptionalJobs = Annotated[list[str] | None, typer.Argument(metavar="JOB", help=REFERENCE, show_default=False)]
Baseline = Annotated[
    str | None,
    typer.Option(metavar="JOB", help="Baseline job (default: compare every pair).", autocompletion=_complete_jobs),
]
Measure = Annotated[
    str | None,
    typer.Option(
        help="Measure: `exact`, `score`, `answer@K` such as answer@10, or the score of a metric such as faithfulness"
        " (default: accuracy)."
    ),
]
_DATASETS = _complete_names_of(texts.list_datasets())
_CORPORA = _complete_names_of(texts.list_corpora())
_GRAPHS = _complete_names_of(graphs.list_graphs())
_PIPELINES = _complete_names_of(service.pipelines())
PROMPTS = _complete_names_of(prompts.list_prompts())
Dataset = Annotated[str, typer.Argument(metavar="NAME", help="Name of the dataset.", autocompletion=_DATASETS)]
Corpus = Annotated[str, typer.Argument(metavar="NAME", help="Name of the corpus.", autocompletion=_CORPORA)]
Graph = Annotated[str, typer.Argument(metavar="NAME", help="Name of the graph.", autocompletion=_GRAPHS)]
DatasetOption = Annotated[str, typer.Option("--dataset", help="Dataset with the questions.", autocompletion=_DATASETS)]
CorpusOption = Annotated[str | None, typer.Option("--corpus", help="Corpus to search.", autocompletion=_CORPORA)]
_PIPELINE = typer.Option(
    "--pipeline", help="Pipeline that answers; see `mathrag pipeline list`.", autocompletion=_PIPELINES
)
PipelineOption = Annotated[str | None, _PIPELINE]
RequiredPipelineOption = Annotated[str, _PIPELINE]
QuestionLimit = Annotated[
    int | None, typer.Option("--limit", min=1, help="Use only the first N questions (default: all).")
]
Repeats = Annotated[int, typer.Option("--repeats", help="Number of times that each question is asked.")]
PromptOption = Annotated[
    list[str] | None,
    typer.Option(
        "--prompt", metavar="generate=NAME", autocompletion=PROMPTS,
        help="Generator prompt, such as generate=short; see `mathrag prompt list` (default: depends on the grader).",
    ),
]  # fmt: skip


def parse_prompts(chosen: list[str] | None) -> list[str]:
    """Return the parameters that choose these prompts, in the form of `--set`.

    Raises:
        Failed: a prompt is not for the generator.
    """
    found = []
    for text in chosen or []:
        role, separator, name = text.rpartition("=")
        if not name or (separator and role != "generate"):
            hint = "write --prompt generate=NAME; set the judge's rubric with --set grading.rubric=TEXT"
            raise Failed(
                "usage", f"--prompt {text} does not name the generator: you can only choose its prompt", hint=hint
            )
        found.append(f"generate.template={msgspec.json.encode(name).decode()}")
    return found
