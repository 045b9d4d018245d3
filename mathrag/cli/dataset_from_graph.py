"""`mathrag dataset from-graph`: questions for facts that are held out from a graph."""

from enum import StrEnum
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from mathrag.cli.failures import report_errors
from mathrag.cli.output import AsJson, print_facts, print_json
from mathrag.cli.upload import Name, send
from mathrag.client import texts
from mathrag.client.client import Client
from mathrag.client.texts import QuestionSet
from mathrag.client.uploads import Sources
from shared.ingest import graph_paths


class Side(StrEnum):
    """Which end of a fact a question asks for."""

    OBJECT = "object"
    SUBJECT = "subject"
    BOTH = "both"


GraphOption = Annotated[str, typer.Option("--graph", help="Graph that the facts are held out from.")]
Facts = Annotated[
    Path, typer.Option("--facts", help="File or folder of held-out facts, as for `mathrag graph create`.")
]
Split = Annotated[list[str], typer.Option("--split", help="Split of the folder; separate several by commas.")]
Rules = Annotated[str | None, typer.Option(help="Rule bank whose rules lead to the answers.")]
Limit = Annotated[int | None, typer.Option(min=1, help="Number of questions to draw (default: all).")]
Seed = Annotated[int, typer.Option(min=0, help="Seed for drawing questions.")]
SideOption = Annotated[Side, typer.Option("--side", help="Which end of a fact to ask for.")]
Templates = Annotated[
    Path | None,
    typer.Option(help="File of tab-separated lines: relation, question for the object, question for the subject."),
]
Grader = Annotated[
    str, typer.Option(help="text, exact, contains or f1: any answer is right; set: all answers are needed.")
]
Unanswered = Annotated[bool, typer.Option("--unanswered", help="Skip questions that the graph itself answers.")]
DESCRIPTIONS = {
    "repeated": "facts are repeated",
    "known": "facts are in the graph already",
    "unknown_relation": "facts have a relation that the graph does not have",
    "unknown_entity": "questions are about an entity that the graph does not have",
    "many_answers": "questions have more than 1,000 answers",
    "answered": "questions are answered by the graph itself",
    "long": "questions are too long",
}


def from_graph(
    name: Name,
    graph: GraphOption,
    source: Facts,
    split: Split = ["test"],  # noqa: B006 - typer copies it
    rules: Rules = None,
    limit: Limit = None,
    seed: Seed = 0,
    side: SideOption = Side.BOTH,
    templates: Templates = None,
    grader: Grader = "text",
    unanswered: Unanswered = False,
    as_json: AsJson = False,
) -> None:
    """Make a dataset of questions from held-out facts, as RuleQA does. Repeating it changes nothing."""
    with report_errors(as_json=as_json), Client() as client:
        splits = [part for each in split for part in each.split(",") if part]
        rows = graph_paths.fact_lines(source, splits)
        sources = Sources(chain(graph_paths.template_lines(templates) if templates else (), rows))
        options = {"rules": rules, "limit": limit, "seed": seed, "side": side.value, "grader": grader,
                   "unanswered": "true" if unanswered else None}  # fmt: skip
        made = send(client, texts.from_graph(name, graph, sources, **options), sources)
        if as_json:
            print_json(made)
        else:
            _print(made, graph, rules)


def _print(made: QuestionSet, graph: str, rules: str | None) -> None:
    counts = made["counts"]
    typer.echo(f"dataset {made['name']}: {made['items']} of {counts['available']} questions")
    print_facts(
        (name, f"{count} {what}".strip())
        for name, count, what in (
            ("answers", counts["answers"], ""),
            ("graph", counts["answered_by_graph"], "questions have an answer in the graph itself"),
            ("unnamed", counts["unnamed_answers"], "questions have only answers that the graph does not name"),
            ("not later", counts["not_after_graph"], "questions are not after the graph's last fact"),
            ("rules", counts["with_leads"], "questions have an answer that a rule leads to"),
            ("documents", counts["with_documents"], "questions have gold documents"),
            *(("left out", count, DESCRIPTIONS[reason]) for reason, count in counts["left_out"].items()),
        )
        if count
    )
    pipeline = f"rulerag --set rules={rules}" if rules else "hybrid"
    submit = f"mathrag job submit --name N --dataset {made['name']} --corpus {graph} --pipeline {pipeline} --wait"
    typer.echo(f"  next: {submit}")
