"""`mathrag sample` and `mathrag audit`: inspect samples, and check a job's database rows."""

from datetime import datetime
from typing import Annotated, Any, Literal

import typer

from mathrag.cli.api import list_and_print, send_and_print
from mathrag.cli.output import AsJson, Exit, print_facts, print_json, print_table, report_errors
from mathrag.cli.references import JobReference
from mathrag.client import jobs
from mathrag.client.client import Client
from mathrag.client.request import Json
from mathrag.client.service import summarise_audit
from mathrag.report_lines import describe_rules, describe_verdict, name_rules

SHOWN_ROWS = 5
"""Number of a violation's rows that are printed; --json has all."""
sample = typer.Typer()


@sample.command("list")
def list_samples(
    reference: JobReference,
    limit: Annotated[int, typer.Option(help="Maximum number of entries to show.")] = 50,
    differing: Annotated[
        bool, typer.Option("--differing", help="Only samples whose verdicts CORRECT and STRICT differ.")
    ] = False,
    wrong: Annotated[bool, typer.Option("--wrong", help="Only samples whose answer is wrong.")] = False,
    noted: Annotated[bool, typer.Option("--noted", help="Only samples with a thumb or a note.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the samples of a job in dataset order."""
    only: dict[str, Any] = {"differing": differing or None, "wrong": wrong or None, "noted": noted or None}

    def make_row(found: Json) -> tuple[object, ...]:
        correct, strict = ({True: "yes", False: "no"}.get(found[grader]) for grader in ("correct", "strict"))
        place = (found["index"], found["repeat"], found["state"])
        row = (*place, found["answer"], found["gold"], correct, strict, found["ending"])
        return (*row, found["thumbs_up"] or None, found["thumbs_down"] or None, found["notes"]) if noted else row

    head: tuple[str, ...] = ("INDEX", "REPEAT", "STATE", "ANSWER", "GOLD", "CORRECT", "STRICT", "ENDING")
    if noted:
        head = (*head, "UP", "DOWN", "NOTES")
    list_and_print(jobs.samples(reference, **only), head, make_row, as_json, limit=limit)


@sample.command()
def show(
    reference: JobReference,
    index: Annotated[int, typer.Argument(help="Position of the item in the dataset, from 0.")],
    repeat: Annotated[int, typer.Option(help="Number of the repeat, from 0.")] = 0,
    prompts: Annotated[bool, typer.Option("--prompts", help="Include the prompts.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show a sample: its answer, its documents, and its calls with model, time and epoch."""
    send_and_print(jobs.sample(reference, index, repeat=repeat, prompts=prompts), print_sample, as_json)


@sample.command("note")
def write_note(
    reference: JobReference,
    index: Annotated[int, typer.Argument(help="Position of the item in the dataset, from 0.")],
    note: Annotated[str | None, typer.Argument(help="Your note; an empty note removes it.")] = None,
    thumb: Annotated[Literal["up", "down", "none"] | None, typer.Option(help="Your thumb; none removes it.")] = None,
    repeat: Annotated[int, typer.Option(help="Number of the repeat, from 0.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Give a sample a thumb up or down, or a note; print the thumbs and notes that it has from all users."""
    send_and_print(jobs.note(reference, index, thumb=thumb, note=note, repeat=repeat), print_notes, as_json)


def print_notes(notes: Any) -> None:
    """Print one line for each author: name, thumb and note."""
    for each in notes:
        thumb = each["thumb"] and f"thumb {each['thumb']}"
        print_facts([(f"noted by {each['author']}", "; ".join(filter(None, (thumb, each["note"]))))])


def audit(reference: JobReference, as_json: AsJson = False) -> None:
    """Check that a job's stored rows are consistent with each other; exits with 1 if they are not."""
    with report_errors(as_json=as_json), Client() as client:
        found = client.send(jobs.audit(reference))
        print_json(found) if as_json else print_audit(reference, found)
        if not found["clean"]:
            raise typer.Exit(Exit.FINDING)


def describe_answer_rank(outcome: Any) -> str | None:
    """Return the rank of the first candidate with a gold answer, as text; None if it was not checked."""
    if "answer_rank" not in outcome:
        return None
    rank = outcome["answer_rank"]
    return "in no candidate" if rank is None else f"at rank {rank}"


def print_sample(found: Any) -> None:
    """Print the question, the answer, the context and the steps."""
    outcome = found["outcome"] or {}
    verdict = outcome.get("verdict") or {}
    typer.echo(f"sample {found['index']}, repeat {found['repeat']}: {found['state']}")
    print_facts(
        [
            ("question", found["question"]),
            ("gold", found["gold"]),
            ("reply", found["text"]),
            ("answer", outcome.get("answer")),
            ("extraction", outcome.get("extraction")),
            ("verdict", verdict and describe_verdict(verdict)),
            ("answer found", describe_answer_rank(outcome)),
            ("ungraded", outcome.get("grading_failure")),
            ("ending", found["ending"] and f"{found['ending']}: {found['ending_reason']}"),
            ("failure", found["failure"] and f"{found['failure']}: {found['detail']}"),
            ("unreadable", None if found["failure"] else found["detail"]),
        ]
    )
    print_notes(found["notes"])
    trace = outcome.get("trace") or {}
    print_facts(describe_rules(trace.get("decisions", ())))
    rules_by_document = {each["document"]: name_rules(each) for each in trace.get("candidates", ())}
    for hash_, document in found["documents"].items():
        by = rules_by_document.get(hash_, "")
        typer.echo(f"\ncontext {hash_[:12]}{by and f' by {by}'}\n{document['problem']}\n{document['text']}".rstrip())
    for step in found["steps"]:
        if prompt := step.get("prompt"):
            typer.echo(f"\nprompt {step['position']}.{step['slot']} {step['role']}\n{prompt}".rstrip())
    typer.echo()
    answered = ("OUTCOME", "RATING", "TOKENS", "EPOCH", "AT ONCE", "LAPSES", "SECONDS")
    rows = [_make_step_row(step) for step in found["steps"]]
    print_table(("STEP", "ROLE", "KEY", "MODEL", *answered, "FROM"), rows)


def _make_step_row(step: Any) -> tuple[object, ...]:
    attempt = step["attempt"] or {}
    place = f"{step['position']}.{step['slot']}"
    source = "this sample" if step["created"] else "shared"
    lapses = sum(each["outcome"] == "lapsed" for each in step["other_attempts"])
    beside = (attempt.get("concurrency"), lapses or None)
    # Prompt and completion tokens, such as "120+31"; None if unknown.
    counts = (attempt.get("prompt_tokens"), attempt.get("completion_tokens"))
    tokens = None if None in counts else f"{counts[0]}+{counts[1]}"
    result = (attempt.get("outcome", "open"), (attempt.get("reply") or {}).get("rating"), tokens)
    if not attempt.get("started_at") or not attempt.get("ended_at"):
        seconds = None
    else:
        started, ended = (datetime.fromisoformat(attempt[name]) for name in ("started_at", "ended_at"))
        seconds = f"{(ended - started).total_seconds():.3f}"
    answered = (*result, attempt.get("epoch"), *beside, seconds)
    return place, step["role"], step["key"][:12], step["model"], *answered, source


def print_audit(reference: str, found: Any) -> None:
    """Print one paragraph per violation: its message, the first items and rows, and their numbers."""
    for violation in found["violations"]:
        typer.echo(f"{violation['invariant']}: {violation['message']}")
        if items := violation["items"]:
            typer.echo(
                f"  items {_format_first(items, violation['item_count'])}: mathrag sample show {reference} {items[0]}"
            )
        typer.echo(f"  rows {_format_first(violation['rows'][:SHOWN_ROWS], len(violation['rows']))}")
    if found.get("source_changed"):
        typer.echo(found.get("source_changed"))
    typer.echo(f"job {reference}: {summarise_audit(found['violations'])}")


def _format_first(shown: Any, count: int) -> str:
    """Return the shown values and the number of further ones, such as "3, 7, 9 and 12 more"."""
    more = f" and {count - len(shown)} more" if count > len(shown) else ""
    return ", ".join(map(str, shown)) + more
