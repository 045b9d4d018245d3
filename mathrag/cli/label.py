"""`mathrag label`: label documents and answers, and measure agreement."""

import sys
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from mathrag.cli.command_groups import Mutation
from mathrag.cli.output import AsJson, print_facts, print_json, print_table, report_errors
from mathrag.client import labels
from mathrag.client.client import Client
from mathrag.client.errors import Failed
from mathrag.client.labels import LabelSet, Task
from mathrag.client.request import MOST_OF_A_PAGE, Json
from shared.messages import format_count
from shared.shapes import KINDS

# Print the result of `mathrag label agreement` for a person.

LEVELS = ("nominal", "ordinal", "interval")


def print_agreement(found: Json, system: str) -> None:
    """Print the summary, the coefficients with intervals, the confusion matrix and the largest disagreements."""
    typer.echo(found["words"])
    counts = f"labels {found['labels']}, abstentions {found['abstentions']}, ties {found['ties']}"
    typer.echo(f"  labelled {found['labelled']} of {found['tasks']} tasks: {counts}\n")
    print_table(
        ("LABELS OF", f"AS THE {system.upper()}", "KAPPA", "WEIGHTED KAPPA"),
        map(_make_agreement_row, [{**found["majority"], "labeller": "the majority"}, *found["labellers"]]),
    )
    typer.echo()
    raters = (("labellers", found["people"]), (f"labellers and {system}", found["with_system"]))
    print_table(("ALPHA AMONG", *map(str.upper, LEVELS)), [(who, *_format_alphas(alphas)) for who, alphas in raters])
    # Print why a coefficient could not be computed, each reason once.
    for note in dict.fromkeys(each["note"] for each in (found["majority"], found["people"], found["with_system"])):
        if note is not None:
            typer.echo(f"  {note}")
    if found["majority"]["compared"]:
        typer.echo(f"\nlabels of the majority (rows) and what the {system} said (columns):")
        scale = found["scale"]
        rows = [(label, *counts) for label, counts in zip(scale, found["majority"]["confusion"], strict=True)]
        print_table(("LABEL", *map(str, scale)), rows)
    if found["disagreements"]:
        typer.echo()
        print_table(
            ("TASK", "ITEM", "REPEAT", "LABEL", system.upper()), map(_make_disagreement_row, found["disagreements"])
        )


def _make_agreement_row(found: Json) -> tuple[object, ...]:
    same = f"{found['same']} of {found['compared']}"
    return found["labeller"], same, _format_coefficient(found["kappa"]), _format_coefficient(found["weighted_kappa"])


def _format_alphas(alphas: Json) -> list[str]:
    return [_format_coefficient(alphas[level]) for level in LEVELS]


def _format_coefficient(found: Json) -> str:
    if found["value"] is None:
        return "-"
    span = "" if found["low"] is None else f" ({found['low']:.2f} to {found['high']:.2f})"
    return f"{found['value']:.2f}{span}"


def _make_disagreement_row(found: Json) -> tuple[object, ...]:
    return found["number"], found["item"], found["repeat"], found["label"], found["system"]


# `mathrag label`: label documents and answers blindly, and measure how reliable the judge is.

label = typer.Typer()

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the label set.")]
Open = Annotated[bool, typer.Option("--open", help="Show the judge's or grader's verdict, too (not blind).")]
ABSTAINED = "abstain"


@label.command(cls=Mutation)
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the new label set.")],
    job: Annotated[str, typer.Option(help="Ended job: name, id, or the first characters of the id.")],
    what: Annotated[str, typer.Option(help=f"What to label: {', '.join(KINDS)}.")] = "documents",
    size: Annotated[int, typer.Option(help="Largest number of tasks.")] = 100,
    seed: Annotated[int, typer.Option(help="Seed for drawing tasks.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Draw labelling tasks from a job's rated documents or graded answers. Repeating it changes nothing."""
    with report_errors(as_json=as_json), Client() as client:
        made = client.send(labels.create(name, job, what, size, seed))
        if as_json:
            print_json(made)
            return
        typer.echo(
            f"label set {name}: {made['tasks']} of {made['eligible']} {_choose_noun(made)} of {made['job_name']}"
        )
        typer.echo(f"  next: mathrag label next {name}")


@label.command("list")
def list_sets(
    limit: Annotated[int, typer.Option(help="Number of label sets to list.")] = 50, as_json: AsJson = False
) -> None:
    """List label sets, newest first, with their numbers of labels and labellers."""
    with report_errors(as_json=as_json), Client() as client:
        found = list(islice(client.all(labels.list_label_sets(min(limit, MOST_OF_A_PAGE))), limit))
        if as_json:
            print_json(found)
        elif found:
            print_table(("NAME", "WHAT", "JOB", "TASKS", "LABELS", "LABELLERS"), map(_make_row, found))
        else:
            typer.echo("No label sets yet: mathrag label create --help")


def _make_row(found: LabelSet) -> tuple[object, ...]:
    labels = sum(each["labels"] for each in found["labellers"])
    return found["name"], found["what"], found["job_name"], found["tasks"], labels, len(found["labellers"])


@label.command()
def show(name: Name, as_json: AsJson = False) -> None:
    """Show a label set: its job, its instructions, and each labeller's progress."""
    with report_errors(as_json=as_json), Client() as client:
        found = client.send(labels.get(name))
        if as_json:
            print_json(found)
            return
        typer.echo(f"label set {name}: {found['tasks']} of {found['eligible']} {_choose_noun(found)}")
        job = f"{found['job_name']} ({'purged' if found['purged'] else found['job']})"
        print_facts([("job", job), ("seed", found["seed"]), ("task", found["instructions"]), ("hash", found["hash"])])
        for each in found["labellers"]:
            same = f"{each['same']} as the {_name_system(found['what'])}"
            given, abstained = format_count(each["labels"], "label"), format_count(each["abstained"], "abstention")
            typer.echo(f"  {each['labeller']}: {given}, {same}; {abstained}")


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


def _print_task(of: LabelSet, task: Task, done: int) -> None:
    typer.echo(f"task {task['number']} of {of['tasks']}, {done} done: {of['instructions']}\n")
    parts = [(name, task["content"].get(name)) for name in ("question", "problem", "text", "answer")]
    parts += [("right answer", gold) for gold in task["content"].get("golds", ())]
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
    note: Annotated[str, typer.Option(help="Reason for the label, up to 2000 characters.")] = "",
    was_open: Annotated[bool, typer.Option("--open", help="You have seen the judge's or grader's verdict.")] = False,
    as_json: AsJson = False,
) -> None:
    """Label a task; if you label it again, your last label counts."""
    with report_errors(as_json=as_json), Client() as client:
        body = {"abstained": True} if value == ABSTAINED else {"value": int(value) if value.isdecimal() else value}
        label = client.send(labels.give(name, number, {**body, "note": note, "blind": not was_open}))
        if as_json:
            print_json(label)
            return
        text = "an abstention" if label["abstained"] else label["value"]
        typer.echo(f"task {number} of {name}: {text}\n  next: mathrag label next {name}")


@label.command()
def export(
    name: Name,
    out: Annotated[Path | None, typer.Option(help="File to write (default: standard output).")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write all labels as JSON lines: labeller, time, blind or open, task and value."""
    with report_errors(as_json=as_json), Client() as client:
        request = labels.export(name)
        if out is None:
            sys.stdout.buffer.writelines(client.stream(request))
            sys.stdout.buffer.flush()
            return
        if out.exists() and not force:
            raise Failed("conflict", f"{out} already exists", hint="choose another file, or --force")
        client.save(request, out)
        if as_json:
            print_json({"set": name, "file": str(out)})
        elif not client.shows:
            typer.echo(f"the labels of {name} are in {out}")


@label.command()
def agreement(
    name: Name,
    count_open: Annotated[bool, typer.Option("--open", help="Also count labels that were not given blindly.")] = False,
    seed: Annotated[int, typer.Option(help="Seed for the bootstrap intervals.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Measure how labellers agree with the judge or grader and with each other: kappa, alpha, confusion."""
    with report_errors(as_json=as_json), Client() as client:
        found = client.send(labels.agreement(name, seed, blind=not count_open))
        if as_json:
            print_json(found)
        else:
            print_agreement(found, _name_system(found["what"]))


@label.command()
def calibration(name: Name, as_json: AsJson = False) -> None:
    """Calibrate the judge's ratings by blind labels; a job uses it with --set gate.labels=NAME."""
    with report_errors(as_json=as_json), Client() as client:
        found = client.send(labels.calibration(name))
        if as_json:
            print_json(found)
            return
        typer.echo(f"{found['judge']}, by labels of {found['tasks']} tasks: {found['hash']}")
        rows = [(each["rating"], each["tasks"], each["mean"], each["worth"]) for each in found["ratings"]]
        shown = [(rating, tasks, *(value and f"{value:.2f}" for value in figures)) for rating, tasks, *figures in rows]
        print_table(("RATING", "TASKS", "MEAN LABEL", "IS WORTH"), shown)
        typer.echo(f"  next: mathrag job submit ... --set gate.labels={name}")


def _name_system(what: str) -> str:
    """Return the system whose verdicts the labels are compared with: "judge" or "grader"."""
    kind: Any = what
    return KINDS[kind].judged_by


def _choose_noun(of: LabelSet) -> str:
    return "answers" if of["what"] == "answers" else "documents"
