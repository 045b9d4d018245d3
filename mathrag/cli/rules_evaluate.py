"""`mathrag rules evaluate`: how well a bank predicts held-out facts; no service is needed."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from mathrag.cli.failures import reported
from mathrag.cli.output import AsJson, facts, print_json, table
from shared.statistics.intervals import Interval

if TYPE_CHECKING:
    from mathrag.cli.held_out import Bank
    from shared.rules.trial import Trial

Splits = list[str]

BankFile = Annotated[Path, typer.Argument(metavar="BANK", help="A file of `mathrag rules export`; gzip, too.")]
GraphPath = Annotated[Path, typer.Option("--graph", help="The training facts, as `mathrag graph create` takes them.")]
FactsPath = Annotated[Path, typer.Option("--facts", help="The held-out facts, alike.")]
SplitOption = Annotated[Splits, typer.Option("--split", help="Of a folder of training facts; commas or again.")]
FactsSplit = Annotated[Splits, typer.Option("--facts-split", help="Of a folder of held-out facts, alike.")]
Limit = Annotated[int | None, typer.Option(min=1, help="Predict only the first so many.")]
Processes = Annotated[int, typer.Option(min=1, max=64, help="Predicting processes.")]


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """What is printed."""

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
    """Predict held-out facts by the temporal rules of an exported bank: filtered MRR and hits, without a service."""
    with reported(as_json=as_json):
        from mathrag.cli.held_out import read_bank, read_trial  # numpy: no other command of rules waits for it

        rules = read_bank(bank)
        trial = read_trial(graph, _names(split), held_out, _names(facts_split), limit)
        found = _evaluated(rules, trial, processes)
        if as_json:
            print_json(found)
        else:
            _print(found)


def _names(splits: Splits) -> Splits:
    return [part for each in splits for part in each.split(",") if part]


def _evaluated(bank: "Bank", trial: "Trial", processes: int) -> Evaluation:
    from mathrag.cli.link_prediction import rank
    from shared.rules.evaluation import summarise

    queries = 2 * len(trial.tested.triples)
    try:
        ranked = rank(bank, trial, processes, lambda done: _tell(f"{done:,} of {queries:,} queries"))
    finally:
        _tell("")
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


def _tell(progress: str) -> None:
    """One line that is written over and over, where a person watches."""
    if sys.stderr.isatty():
        typer.echo(f"\r\033[K{progress}", err=True, nl=False)


def _print(found: Evaluation) -> None:
    typer.echo(f"{found.rules} rules of {found.miner}, {found.queries} queries: each fact's object, and its subject")
    typer.echo()
    measures = {"MRR": found.mrr, "hits@1": found.hits_1, "hits@3": found.hits_3, "hits@10": found.hits_10}
    rows = [(name, f"{each.value:.4f}", f"{each.low:.4f} to {each.high:.4f}") for name, each in measures.items()]
    table(("FILTERED", "VALUE", "95 %"), rows)
    typer.echo()
    unknown = "that the training facts do not name"
    facts(
        (name, f"{count} queries {what}")
        for name, count, what in (
            ("no candidate", found.without_candidate, "for which no rule names an entity"),
            ("unknown", found.unknown_questions, f"about an entity or relation {unknown}"),
            ("unknown answers", found.unknown_answers, f"have an answer {unknown}"),
            ("missed", found.missed, "of these have it from no rule, and count 0"),
        )
        if count
    )
