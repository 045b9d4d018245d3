"""`mathrag retrieval`: measure and tune retrieval with a program of the retriever, without a running stack."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from mathrag.cli.output import AsJson, Set, parse_parameters, print_facts, print_json, print_table, report_errors
from mathrag.client.errors import Failed
from mathrag.formatting import describe_difference, format_figure
from mathrag_gate.cli import checks

SERVICE = "services.retriever.evaluation"

retrieval = typer.Typer(no_args_is_help=True)

From = Annotated[
    Path, typer.Option("--from", metavar="DIR", help="BEIR folder: corpus.jsonl, queries.jsonl, qrels/SPLIT.tsv.")
]
K = Annotated[int, typer.Option("--k", help="Length of each ranked list, in documents.")]


@retrieval.command("eval")
def evaluate(
    source: From,
    mode: Annotated[
        str, typer.Option(help="Retrieval mode, such as dense, sparse, hybrid, weighted, weighted-z-score or enhanced.")
    ],
    split: Annotated[str, typer.Option(help="Split of the judgements (qrels).")] = "test",
    k: K = 100,
    metric: Annotated[
        list[str] | None,
        typer.Option(metavar="MEASURE", help="Additional measure, such as nDCG@20; repeat for several."),
    ] = None,
    against: Annotated[
        list[str] | None,
        typer.Option(metavar="MODE", help="Retrieval mode, or TREC run file, to compare with; repeat for several."),
    ] = None,
    run: Annotated[Path | None, typer.Option(help="File to write the ranked lists to, in TREC's run format.")] = None,
    settings: Set = None,
    as_json: AsJson = False,
) -> None:
    """Measure a retrieval mode on judged queries, and test it against others; --json prints every query's figures."""
    with report_errors(as_json=as_json):
        request = {
            "type": "eval", "folder": str(source), "mode": mode, "split": split, "k": k, "metrics": metric or [],
            "against": against or [], "run": str(run) if run else None, "params": parse_parameters(settings or []),
        }  # fmt: skip
        found = run_request(request)
        print_json(found) if as_json else print_evaluation(found)


@retrieval.command()
def tune(
    source: From,
    mode: Annotated[
        str, typer.Option(help="Retrieval mode, such as hybrid, weighted or weighted-z-score.")
    ] = "weighted",
    over: Annotated[
        str, typer.Option(metavar="dense|rrf_k", help="Parameter to tune: the weight of the dense list, or k of RRF.")
    ] = "dense",
    split: Annotated[
        str | None, typer.Option(help="Split to tune on (default: dev, or half of the held-out queries).")
    ] = None,
    held_out: Annotated[str, typer.Option(metavar="SPLIT", help="Split to measure the chosen value on.")] = "test",
    k: K = 100,
    metric: Annotated[str, typer.Option(metavar="MEASURE", help="Measure to maximise.")] = "nDCG@10",
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    settings: Set = None,
    as_json: AsJson = False,
) -> None:
    """Tune the weight of the dense list (or k of RRF) on some queries, and measure the result on others."""
    with report_errors(as_json=as_json):
        request = {
            "type": "tune", "folder": str(source), "mode": mode, "over": over, "split": split, "held_out": held_out,
            "k": k, "metric": metric, "seed": seed, "params": parse_parameters(settings or []),
        }  # fmt: skip
        found = run_request(request)
        print_json(found) if as_json else print_tuning(found)


def run_request(request: dict[str, Any]) -> Any:
    """Run a request in the retriever's evaluation program, and return its result.

    Raises:
        Failed: the program reported an error.
    """
    ended = checks.run(SERVICE, msgspec.json.encode(request))
    found = msgspec.json.decode(ended.stdout)
    if ended.returncode:
        raise Failed(**found["error"])
    return found


def print_evaluation(found: Any) -> None:
    """Print one line per mode, and the tests of the differences."""
    typer.echo(f"{found['mode']}: {found['queries']} queries of {found['split']}, {found['documents']} documents")
    print_facts(list_left_out(found))
    names = list(found["intervals"])
    rows = [(each["mode"], *(format_figure(each[name]) for name in names)) for each in (found, *found["against"])]
    typer.echo()
    print_table(("MODE", *names), rows)
    typer.echo()
    first = names[0]
    low, high = map(format_figure, found["intervals"][first])
    typer.echo(f"  {first} of {found['mode']}: {format_figure(found[first])} ({low} to {high}) [95 %]")
    print_verdicts([(each["mode"], each["differences"][first]) for each in found["against"]])


def print_tuning(found: Any) -> None:
    """Print the chosen value, its interval, and its result on the held-out queries."""
    low, high = found["interval"]
    lowest, highest = found["plateau"]
    metric, held_out = found["metric"], found["held_out"]
    value, other = found["development"], held_out["intervals"][metric]
    span = " to ".join(map(format_figure, other))
    best = max(point["value"] for point in found["curve"])
    typer.echo(f"{found['mode']}: {metric} is best at {found['over']} = {found['chosen']:g}")
    print_facts(
        [
            ("chosen on", f"{value['from']}, {value['queries']} queries: {format_figure(best)}"),
            ("other queries", f"would choose {low:g} to {high:g} [bootstrap, 95 %]"),
            ("plateau", f"values from {lowest:g} to {highest:g} are not separable from it"),
            (
                "held out",
                f"{held_out['queries']} queries: {format_figure(held_out[metric])} ({span})",
            ),
            ("use", found["set"]),
        ]
    )
    print_verdicts([(each["mode"], each["difference"]) for each in held_out["against"]])


def list_left_out(found: Any) -> Iterator[tuple[str, object]]:
    """Yield the numbers of documents and queries that the figures exclude or count as 0."""
    message = (
        ("empty documents", "empty_documents", ""),
        ("unjudged", "unjudged", " queries without a relevant document are excluded"),
        ("unasked", "unasked", " judged queries are not in queries.jsonl"),
        ("not in corpus", "absent", " relevant documents count as not found"),
        ("without a hit", "unanswered", " queries count as 0"),
        ("own documents", "themselves", " queries are also documents, which are excluded from their own results"),
    )
    for name, field, words in message:
        if found[field]:
            yield name, f"{found[field]}{words}"


def print_verdicts(tests: Sequence[tuple[str, Any]]) -> None:
    """Print the result of each test in words."""
    if tests:
        typer.echo("  compared with the other modes, by paired tests with Holm's correction:")
    for other, test in tests:
        typer.echo(f"    {other}: {describe_difference(test)}")
