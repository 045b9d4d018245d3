"""`mathrag retrieval`: how well searching works, measured by a process of the retriever's; nothing needs to run."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from mathrag.cli import services
from mathrag.cli.failures import reported
from mathrag.cli.output import AsJson, facts, print_json, table
from mathrag.cli.parameters import Set, parameters
from mathrag.client.errors import Failed
from shared.pages.words import figure, verdict

SERVICE = "services.retriever.evaluation"

retrieval = typer.Typer(no_args_is_help=True)

From = Annotated[Path, typer.Option("--from", help="A BEIR folder: corpus.jsonl, queries.jsonl, qrels/SPLIT.tsv.")]
K = Annotated[int, typer.Option("--k", help="Documents of every list.")]


@retrieval.command("eval")
def evaluate(
    source: From,
    mode: Annotated[str, typer.Option(help="dense, sparse, hybrid, weighted, weighted-z-score, enhanced ...")],
    split: Annotated[str, typer.Option(help="Which judgements.")] = "test",
    k: K = 100,
    metric: Annotated[list[str] | None, typer.Option(help="A further measure, such as nDCG@20.")] = None,
    against: Annotated[list[str] | None, typer.Option(help="Another mode, or a TREC run, to compare with.")] = None,
    run: Annotated[Path | None, typer.Option(help="Write the ranked lists to this file, as TREC does.")] = None,
    settings: Set = None,
    as_json: AsJson = False,
) -> None:
    """Measure a mode on judged queries, and test it against others; --json has the figures of every query."""
    with reported(as_json=as_json):
        request = {
            "type": "eval", "folder": str(source), "mode": mode, "split": split, "k": k, "metrics": metric or [],
            "against": against or [], "run": str(run) if run else None, "params": parameters(settings or []),
        }  # fmt: skip
        found = asked(request)
        if as_json:
            print_json(found)
        else:
            print_evaluation(found)


@retrieval.command()
def tune(
    source: From,
    mode: Annotated[str, typer.Option(help="hybrid, weighted, weighted-z-score ...")] = "weighted",
    over: Annotated[str, typer.Option(help="dense (the share of the dense list) or rrf_k.")] = "dense",
    split: Annotated[
        str | None, typer.Option(help="Judgements to choose by. [default: dev, else half of the held-out ones]")
    ] = None,
    held_out: Annotated[str, typer.Option(help="Judgements to measure the choice by.")] = "test",
    k: K = 100,
    metric: Annotated[str, typer.Option(help="What is to be best.")] = "nDCG@10",
    seed: Annotated[int, typer.Option(help="Of halving, and of the bootstrap.")] = 0,
    settings: Set = None,
    as_json: AsJson = False,
) -> None:
    """Choose how much the dense list weighs (or k of RRF) on some queries, and measure the choice on others."""
    with reported(as_json=as_json):
        request = {
            "type": "tune", "folder": str(source), "mode": mode, "over": over, "split": split, "held_out": held_out,
            "k": k, "metric": metric, "seed": seed, "params": parameters(settings or []),
        }  # fmt: skip
        found = asked(request)
        if as_json:
            print_json(found)
        else:
            print_tuning(found)


def asked(request: dict[str, Any]) -> Any:
    """The result of a request; what goes wrong there is said here.

    Raises:
        Failed: it could not be answered.
    """
    ended = services.run(SERVICE, msgspec.json.encode(request))
    found = msgspec.json.decode(ended.stdout)
    if ended.returncode:
        raise Failed(**found["error"])
    return found


def print_evaluation(found: Any) -> None:
    """One line a mode, then what the differences are worth."""
    typer.echo(f"{found['mode']}: {found['queries']} queries of {found['split']}, {found['documents']} documents")
    facts(left_out(found))
    names = list(found["intervals"])
    rows = [(each["mode"], *(figure(each[name]) for name in names)) for each in (found, *found["against"])]
    typer.echo()
    table(("MODE", *names), rows)
    typer.echo()
    first = names[0]
    low, high = map(figure, found["intervals"][first])
    typer.echo(f"  {first} of {found['mode']}: {figure(found[first])} ({low} to {high}) [95 %]")
    print_verdicts([(each["mode"], each["differences"][first]) for each in found["against"]])


def print_tuning(found: Any) -> None:
    """The choice, how sure it is, and what it is worth."""
    low, high = found["interval"]
    lowest, highest = found["plateau"]
    metric, held_out = found["metric"], found["held_out"]
    value, other = found["development"], held_out["intervals"][metric]
    best = max(point["value"] for point in found["curve"])
    typer.echo(f"{found['mode']}: {metric} is best at {found['over']} = {found['chosen']:g}")
    facts(
        [
            ("chosen on", f"{value['from']}, {value['queries']} queries: {figure(best)}"),
            ("other queries", f"would choose {low:g} to {high:g} [bootstrap, 95 %]"),
            ("plateau", f"anything from {lowest:g} to {highest:g} is not separable from it"),
            (
                "held out",
                f"{held_out['queries']} queries: {figure(held_out[metric])} ({' to '.join(map(figure, other))})",
            ),
            ("use", found["set"]),
        ]
    )
    print_verdicts([(each["mode"], each["difference"]) for each in held_out["against"]])


def left_out(found: Any) -> Iterator[tuple[str, object]]:
    """What is in no figure, or counts as 0."""
    said = (
        ("empty documents", "empty_documents", ""),
        ("unjudged", "unjudged", " queries without a relevant document are left out"),
        ("unasked", "unasked", " judged queries are not in queries.jsonl"),
        ("not in corpus", "absent", " relevant documents count as not found"),
        ("without a hit", "unanswered", " queries count as 0"),
        ("own documents", "themselves", " queries are documents, which they do not find"),
    )
    for name, field, words in said:
        if found[field]:
            yield name, f"{found[field]}{words}"


def print_verdicts(tests: Sequence[tuple[str, Any]]) -> None:
    """Each difference in words."""
    if tests:
        typer.echo("  how far that is above the others, by paired tests with Holm's correction:")
    for other, test in tests:
        typer.echo(f"    {other}: {verdict(test)}")
