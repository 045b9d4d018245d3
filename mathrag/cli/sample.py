"""`mathrag sample` and `mathrag audit`: why to believe a result."""

from datetime import datetime
from itertools import islice
from typing import Annotated, Any

import typer

from mathrag.cli.failures import Exit, reported
from mathrag.cli.output import AsJson, facts, print_json, table
from mathrag.cli.references import JobReference
from mathrag.client import jobs
from mathrag.client.audits import audited
from mathrag.client.client import Client
from mathrag.client.request import MOST_OF_A_PAGE
from shared.pages.rules import bringing, rules

SHOWN_ROWS = 5
"""Of a violation; --json has all."""
sample = typer.Typer()


@sample.command("list")
def list_samples(
    reference: JobReference,
    limit: Annotated[int, typer.Option(help="How many, in dataset order.")] = 50,
    differing: Annotated[
        bool, typer.Option("--differing", help="Only those that the two graders judge differently.")
    ] = False,
    wrong: Annotated[bool, typer.Option("--wrong", help="Only those whose answer is wrong.")] = False,
    as_json: AsJson = False,
) -> None:
    """Samples of a job, in dataset order."""
    with reported(as_json=as_json), Client() as client:
        only = {name: "true" for name, asked in (("differing", differing), ("wrong", wrong)) if asked}
        found = list(islice(client.all(jobs.samples(reference, min(limit, MOST_OF_A_PAGE), **only)), limit))
        if as_json:
            print_json(found)
        else:
            table(("INDEX", "REPEAT", "STATE", "ANSWER", "GOLD", "CORRECT", "STRICT", "ENDING"), map(_row, found))


def _row(found: Any) -> tuple[object, ...]:
    correct, strict = ({True: "yes", False: "no"}.get(found[grader]) for grader in ("correct", "strict"))
    place = (found["index"], found["repeat"], found["state"])
    return *place, found["answer"], found["gold"], correct, strict, found["ending"]


@sample.command()
def show(
    reference: JobReference,
    index: Annotated[int, typer.Argument(help="Of the item, in dataset order, from 0.")],
    repeat: Annotated[int, typer.Option(help="Which repeat, from 0.")] = 0,
    prompts: Annotated[bool, typer.Option("--prompts", help="With what models were asked.")] = False,
    as_json: AsJson = False,
) -> None:
    """One sample: its calls, who answered them, when, and during which epoch."""
    with reported(as_json=as_json), Client() as client:
        found = client.send(jobs.sample(reference, index, repeat, prompts=prompts))
        if as_json:
            print_json(found)
        else:
            print_sample(found)


def audit(reference: JobReference, as_json: AsJson = False) -> None:
    """Check a job's rows against the invariants; exits with 1 when one is violated."""
    with reported(as_json=as_json), Client() as client:
        found = client.send(jobs.audit(reference))
        if as_json:
            print_json(found)
        else:
            print_audit(reference, found)
        if not found["clean"]:
            raise typer.Exit(Exit.FINDING)


def answer_found(outcome: Any) -> str | None:
    """Where among the candidates a gold answer occurs; None: it was not looked for."""
    if "answer_rank" not in outcome:
        return None
    rank = outcome["answer_rank"]
    return "in no candidate" if rank is None else f"at rank {rank}"


def print_sample(found: Any) -> None:
    """The question, the answer, the steps."""
    outcome = found["outcome"] or {}
    verdict = outcome.get("verdict") or {}
    typer.echo(f"sample {found['index']}, repeat {found['repeat']}: {found['state']}")
    facts(
        [
            ("question", found["question"]),
            ("gold", found["gold"]),
            ("reply", found["text"]),
            ("answer", outcome.get("answer")),
            ("extraction", outcome.get("extraction")),
            ("verdict", verdict and judged(verdict)),
            ("answer found", answer_found(outcome)),
            ("ungraded", outcome.get("grading_failure")),
            ("ending", found["ending"] and f"{found['ending']}: {found['ending_reason']}"),
            ("failure", found["failure"] and f"{found['failure']}: {found['detail']}"),
            ("unreadable", None if found["failure"] else found["detail"]),
        ]
    )
    trace = outcome.get("trace") or {}
    facts(rules(trace.get("decisions", ())))
    brought = {each["document"]: bringing(each) for each in trace.get("candidates", ())}
    for hash_, document in found["documents"].items():
        by = brought.get(hash_, "")
        typer.echo(f"\ncontext {hash_[:12]}{by and f' by {by}'}\n{document['problem']}\n{document['text']}".rstrip())
    for step in found["steps"]:
        if prompt := step.get("prompt"):
            typer.echo(f"\nprompt {step['position']}.{step['slot']} {step['role']}\n{prompt}".rstrip())
    typer.echo()
    head = (
        "STEP",
        "ROLE",
        "KEY",
        "MODEL",
        "OUTCOME",
        "RATING",
        "TOKENS",
        "EPOCH",
        "AT ONCE",
        "LAPSES",
        "SECONDS",
        "FROM",
    )
    table(head, [_step(step) for step in found["steps"]])


def judged(verdict: Any) -> str:
    """What the grader found."""
    if verdict["type"] == "graded":
        return f"math-verify {verdict['math_verify']}, strict {verdict['strict']}"
    parts = {"correct": verdict["correct"], "strict": verdict.get("strict"), "score": verdict.get("score")}
    return ", ".join(f"{name} {value}" for name, value in parts.items() if value is not None)


def _step(step: Any) -> tuple[object, ...]:
    attempt = step["attempt"] or {}
    place = f"{step['position']}.{step['slot']}"
    source = "this sample" if step["created"] else "shared"
    lapses = sum(each["outcome"] == "lapsed" for each in step["other_attempts"])
    beside = (attempt.get("concurrency"), lapses or None)
    said = (attempt.get("outcome", "open"), (attempt.get("reply") or {}).get("rating"), _tokens(attempt))
    answered = (*said, attempt.get("epoch"), *beside, _seconds(attempt))
    return place, step["role"], step["key"][:12], step["model"], *answered, source


def _tokens(attempt: Any) -> str | None:
    """Such as "120+31": in and out."""
    counts = (attempt.get("prompt_tokens"), attempt.get("completion_tokens"))
    return None if None in counts else f"{counts[0]}+{counts[1]}"


def _seconds(attempt: Any) -> str | None:
    if not attempt.get("started_at") or not attempt.get("ended_at"):
        return None
    started, ended = (datetime.fromisoformat(attempt[name]) for name in ("started_at", "ended_at"))
    return f"{(ended - started).total_seconds():.3f}"


def print_audit(reference: str, found: Any) -> None:
    """One paragraph per violation: what is wrong, the first items and rows, and how many there are."""
    for violation in found["violations"]:
        typer.echo(f"{violation['invariant']}: {violation['message']}")
        if items := violation["items"]:
            typer.echo(f"  items {_first(items, violation['item_count'])}: mathrag sample show {reference} {items[0]}")
        typer.echo(f"  rows {_first(violation['rows'][:SHOWN_ROWS], len(violation['rows']))}")
    if found.get("source_changed"):
        typer.echo(found.get("source_changed"))
    typer.echo(f"job {reference}: {audited(found['violations'])}")


def _first(shown: Any, count: int) -> str:
    """Such as "3, 7, 9 and 12 more"."""
    more = f" and {count - len(shown)} more" if count > len(shown) else ""
    return ", ".join(map(str, shown)) + more
