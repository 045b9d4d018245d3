"""`mathrag label`: collect human labels, and measure their agreement with the judge or grader."""

from pathlib import Path
from typing import Annotated, Any

import typer

from mathrag.cli.api import list_and_print, save, send_and_print
from mathrag.cli.command_groups import Mutation
from mathrag.cli.output import AsJson, Force, print_facts, print_json, print_table, report_errors
from mathrag.client import labels
from mathrag.client.client import Client
from mathrag.client.request import Json
from mathrag.messages import format_count

label = typer.Typer()

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the label set.")]
Open = Annotated[bool, typer.Option("--open", help="Also show the verdict of the judge or grader (not blind).")]
ABSTAINED = "abstain"
LEVELS = ("nominal", "ordinal", "interval")
NOUNS = {
    "documents": "documents", "relevance": "documents", "answers": "answers", "support": "sentences",
    "sufficient": "questions", "addresses": "replies",
}  # fmt: skip
"""Nouns of the tasks, by the kind of verdict that is labelled."""


@label.command(cls=Mutation)
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the new label set.")],
    job: Annotated[str, typer.Option(help="Ended job: name, id, or the first characters of the id (four or more).")],
    what: Annotated[
        str, typer.Option(metavar="KIND", help=f"Kind of verdict (docs/how-to/labels.md): {', '.join(NOUNS)}.")
    ] = "documents",
    size: Annotated[int, typer.Option(help="Maximum number of tasks.")] = 100,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Draw labelling tasks from the verdicts of a job's judge or grader. Repeating the command changes nothing."""
    with report_errors(as_json=as_json), Client() as client:
        kind: Any = what  # the server checks the kind
        made = client.send(labels.create(name, job, kind, size=size, seed=seed))
        if as_json:
            print_json(made)
            return
        typer.echo(f"label set {name}: {_count_tasks(made)} of {made['job_name']}")
        typer.echo(f"  next: mathrag label next {name}")


@label.command("list")
def list_sets(
    limit: Annotated[int, typer.Option(help="Maximum number of entries to show.")] = 50, as_json: AsJson = False
) -> None:
    """List label sets, newest first, with the numbers of labels and labellers."""

    def make_row(found: Json) -> tuple[object, ...]:
        given = sum(each["labels"] for each in found["labellers"])
        return found["name"], found["what"], found["job_name"], found["tasks"], given, len(found["labellers"])

    list_and_print(
        labels.list_label_sets(), ("NAME", "WHAT", "JOB", "TASKS", "LABELS", "LABELLERS"), make_row, as_json,
        limit=limit, nothing="No label sets yet: mathrag label create --help",
    )  # fmt: skip


@label.command()
def show(name: Name, as_json: AsJson = False) -> None:
    """Show a label set: its job, its instructions, and each labeller's progress."""

    def print_set(found: Json) -> None:
        typer.echo(f"label set {name}: {_count_tasks(found)}")
        job = f"{found['job_name']} ({'purged' if found['purged'] else found['job']})"
        print_facts([("job", job), ("seed", found["seed"]), ("task", found["instructions"]), ("hash", found["hash"])])
        for each in found["labellers"]:
            same = f"{each['same']} as the {_name_system(found['what'])}"
            given, abstained = format_count(each["labels"], "label"), format_count(each["abstained"], "abstention")
            typer.echo(f"  {each['labeller']}: {given}, {same}; {abstained}")

    send_and_print(labels.get(name), print_set, as_json)


@label.command("next")
def next_task(name: Name, show_all: Open = False, as_json: AsJson = False) -> None:
    """Show the next task that you have not labelled; blind unless --open is given."""
    with report_errors(as_json=as_json), Client() as client:
        found = client.send(labels.next_task(name, blind=not show_all))
        if as_json:
            print_json(found)
        elif found["task"] is None:
            typer.echo(f"All {found['tasks']} tasks are labelled: mathrag label agreement {name}")
        else:
            _print_task(client.send(labels.get(name)), found["task"], found["done"])


def _print_task(of: Json, task: Json, done: int) -> None:
    typer.echo(f"task {task['number']} of {of['tasks']}, {done} done: {of['instructions']}\n")
    content = task["content"]
    parts = [("question", content.get("question"))]
    parts += [("document", f"{each['problem']}\n{each['text']}".strip()) for each in content.get("documents", ())]
    parts += [(name, content.get(name)) for name in ("problem", "text", "answer", "before", "sentence")]
    parts += [("right answer", gold) for gold in content.get("golds", ())]
    parts.append((f"the {_name_system(of['what'])}", task["system"]))
    for name, text in parts:
        if text not in (None, ""):
            typer.echo(f"{name}:\n{text}\n")
    options = " --open" if task["system"] is not None else ""
    scale = "|".join(map(str, of["scale"]))
    typer.echo(f"  next: mathrag label give {of['name']} {task['number']} {scale}|{ABSTAINED}{options}")


@label.command(cls=Mutation)
def give(
    name: Name,
    number: Annotated[int, typer.Argument(metavar="TASK", help="Number of the task, from 1.")],
    value: Annotated[str, typer.Argument(metavar="VALUE", help=f"Label on the set's scale, or {ABSTAINED}.")],
    note: Annotated[str, typer.Option(metavar="TEXT", help="Reason for the label, up to 2000 characters.")] = "",
    was_open: Annotated[
        bool, typer.Option("--open", help="State that you have seen the verdict of the judge or grader.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Label a task. If you label it again, your last label counts."""
    with report_errors(as_json=as_json), Client() as client:
        given = None if value == ABSTAINED else int(value) if value.isdecimal() else value
        label = client.send(labels.give(name, number, given, blind=not was_open, note=note))
        if as_json:
            print_json(label)
            return
        text = "an abstention" if label["abstained"] else label["value"]
        typer.echo(f"task {number} of {name}: {text}\n  next: mathrag label next {name}")


@label.command()
def export(
    name: Name,
    out: Annotated[Path | None, typer.Option(help="File to write (default: standard output).")] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Write all labels as JSON lines: labeller, time, blind or open, task and value."""
    with report_errors(as_json=as_json), Client() as client:
        if not save(client, labels.export(name), out, force=force):
            return
        if as_json:
            print_json({"set": name, "file": str(out)})
        else:
            typer.echo(f"wrote the labels of {name} to {out}")


@label.command()
def agreement(
    name: Name,
    count_open: Annotated[bool, typer.Option("--open", help="Also count labels that were not given blind.")] = False,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Measure how well labellers agree with the judge or grader and each other (kappa, alpha, confusion matrix)."""
    send_and_print(labels.agreement(name, seed=seed, blind=not count_open), _print_agreement, as_json)


def _print_agreement(found: Json) -> None:
    """Print a summary, the coefficients with intervals, the confusion matrix and the largest disagreements."""
    system = _name_system(found["what"])
    typer.echo(found["words"])
    counts = f"labels {found['labels']}, abstentions {found['abstentions']}, ties {found['ties']}"
    typer.echo(f"  labelled {found['labelled']} of {found['tasks']} tasks: {counts}\n")
    if (corrected := found.get("corrected")) is not None:  # earlier servers do not send it
        typer.echo(f"{corrected['words']}\n")
    print_table(("LABELS OF", f"AS THE {system.upper()}", "KAPPA", "WEIGHTED KAPPA"), [
        (
            each["labeller"], f"{each['same']} of {each['compared']}", _format_coefficient(each["kappa"]),
            _format_coefficient(each["weighted_kappa"]),
        )
        for each in ({**found["majority"], "labeller": "the majority"}, *found["labellers"])
    ])  # fmt: skip
    typer.echo()
    raters = (("labellers", found["people"]), (f"labellers and {system}", found["with_system"]))
    print_table(("ALPHA AMONG", *map(str.upper, LEVELS)), [
        (who, *(_format_coefficient(alphas[level]) for level in LEVELS)) for who, alphas in raters
    ])  # fmt: skip
    # Print why a coefficient could not be computed, each reason once.
    for note in dict.fromkeys(each["note"] for each in (found["majority"], found["people"], found["with_system"])):
        if note is not None:
            typer.echo(f"  {note}")
    if found["majority"]["compared"]:
        typer.echo(f"\nmajority label (rows) and verdict of the {system} (columns):")
        scale = found["scale"]
        rows = [(label, *counts) for label, counts in zip(scale, found["majority"]["confusion"], strict=True)]
        print_table(("LABEL", *map(str, scale)), rows)
    if found["disagreements"]:
        typer.echo()
        fields = ("number", "item", "repeat", "label", "system")
        rows = [tuple(each[field] for field in fields) for each in found["disagreements"]]
        print_table(("TASK", "ITEM", "REPEAT", "LABEL", system.upper()), rows)


def _format_coefficient(found: Json) -> str:
    if found["value"] is None:
        return "-"
    span = "" if found["low"] is None else f" ({found['low']:.2f} to {found['high']:.2f})"
    return f"{found['value']:.2f}{span}"


@label.command()
def calibration(name: Name, as_json: AsJson = False) -> None:
    """Calibrate the judge's ratings with blind labels; to use it in a job: --set gate.labels=NAME."""

    def print_calibration(found: Json) -> None:
        typer.echo(f"{found['judge']}, by labels of {found['tasks']} tasks: {found['hash']}")
        rows = [
            (each["rating"], each["tasks"], *(value and f"{value:.2f}" for value in (each["mean"], each["worth"])))
            for each in found["ratings"]
        ]
        print_table(("RATING", "TASKS", "MEAN LABEL", "IS WORTH"), rows)
        typer.echo(f"  next: mathrag job submit ... --set gate.labels={name}")

    send_and_print(labels.calibration(name), print_calibration, as_json)


def _name_system(what: str) -> str:
    """Return the system that the labels are compared with: "judge" or "grader"."""
    return "grader" if what == "answers" else "judge"


def _count_tasks(of: Json) -> str:
    return f"{of['tasks']} of {of['eligible']} {NOUNS.get(of['what'], 'tasks')}"
