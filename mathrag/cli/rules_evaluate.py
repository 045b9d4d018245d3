"""`mathrag rules evaluate`: measure how well a rule bank predicts held-out facts, without a service."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from mathrag.cli.failures import report_errors
from mathrag.cli.output import AsJson, print_facts, print_json, print_table
from shared.plurals import format_count
from shared.statistics.intervals import Interval

if TYPE_CHECKING:
    from mathrag.cli.held_out import TemporalBank
    from shared.rules.trial import Trial

Splits = list[str]

BankFile = Annotated[
    Path, typer.Argument(metavar="BANK", help="File written by `mathrag rules export`; may be gzipped.")
]
GraphPath = Annotated[Path, typer.Option("--graph", help="Training facts, as for `mathrag graph create`.")]
FactsPath = Annotated[Path, typer.Option("--facts", help="Held-out facts, in the same formats.")]
SplitOption = Annotated[
    Splits, typer.Option("--split", help="Split of a folder of training facts; separate several by commas.")
]
FactsSplit = Annotated[Splits, typer.Option("--facts-split", help="Split of a folder of held-out facts.")]
Limit = Annotated[int | None, typer.Option(min=1, help="Number of held-out facts, from the first (default: all).")]
Processes = Annotated[int, typer.Option(min=1, max=64, help="Number of predicting processes.")]


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """The measures, as --json prints them."""

    miner: str
    rules: int
    queries: int
    without_candidate: int
    """Queries for which no rule names an entity."""
    unknown_questions: int
    """Queries about an entity or relation that the training facts do not name."""
    unknown_answers: int
    """Queries whose answer they do not name."""
    missed: int
    """Of these, how many no rule found in earlier held-out facts: reciprocal rank 0, and no hit."""
    mrr: Interval
    hits_1: Interval
    hits_3: Interval
    hits_10: Interval


def evaluate(
    bank: BankFile,
    graph: GraphPath,
    held_out: FactsPath,
    split: SplitOption = ["train"],  # noqa: B006 - typer copies it
    facts_split: FactsSplit = ["test"],  # noqa: B006
    limit: Limit = None,
    processes: Processes = min(4, os.cpu_count() or 1),
    as_json: AsJson = False,
) -> None:
    """Predict held-out facts with an exported bank's temporal rules, without a service: filtered MRR and hits@k."""
    with report_errors(as_json=as_json):
        from mathrag.cli.held_out import read_bank, read_trial  # numpy: no other command of rules waits for it

        rules = read_bank(bank)
        trial = read_trial(graph, _split_names(split), held_out, _split_names(facts_split), limit)
        found = _evaluate(rules, trial, processes)
        if as_json:
            print_json(found)
        else:
            _print(found)


def _split_names(splits: Splits) -> Splits:
    return [part for each in splits for part in each.split(",") if part]


def _evaluate(bank: "TemporalBank", trial: "Trial", processes: int) -> Evaluation:
    from mathrag.cli.link_prediction import rank
    from shared.rules.evaluation import summarise

    queries = 2 * len(trial.tested.triples)
    try:
        ranked = rank(bank, trial, processes, lambda done: _show_progress(f"{done:,} of {queries:,} queries"))
    finally:
        _show_progress("")
    measures = summarise(ranked.ranks)
    ends = [end in trial.unknown_entities for end in trial.tested.triples[:, [0, 2]].ravel().tolist()]
    strange = [label in trial.unknown_relations for label in trial.tested.triples[:, 1].repeat(2).tolist()]
    return Evaluation(
        miner=bank.miner,
        rules=len(bank.rules),
        without_candidate=ranked.without_candidate,
        unknown_questions=sum(map(max, ends, strange)),
        unknown_answers=sum(ends),
        missed=ranked.ranks[None],
        **msgspec.structs.asdict(measures),
    )


def _show_progress(progress: str) -> None:
    """Overwrite the progress line on standard error, if that is a terminal."""
    if sys.stderr.isatty():
        typer.echo(f"\r\033[K{progress}", err=True, nl=False)


def _print(found: Evaluation) -> None:
    rules, queries = format_count(found.rules, "rule"), format_count(found.queries, "query", "queries")
    typer.echo(f"{rules} of {found.miner}, {queries}: each fact's object, and its subject")
    typer.echo()
    measures = {"MRR": found.mrr, "hits@1": found.hits_1, "hits@3": found.hits_3, "hits@10": found.hits_10}
    rows = [(name, f"{each.value:.4f}", f"{each.low:.4f} to {each.high:.4f}") for name, each in measures.items()]
    print_table(("FILTERED", "VALUE", "95 %"), rows)
    typer.echo()
    unknown = "that the training facts do not name"
    print_facts(
        (name, f"{count} queries {what}")
        for name, count, what in (
            ("no candidate", found.without_candidate, "for which no rule names an entity"),
            ("unknown", found.unknown_questions, f"about an entity or relation {unknown}"),
            ("unknown answers", found.unknown_answers, f"have an answer {unknown}"),
            ("missed", found.missed, "of these have it from no rule, and count 0"),
        )
        if count
    )
