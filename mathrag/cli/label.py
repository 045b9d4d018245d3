"""`mathrag label`: label documents and answers blindly, and see how far the judge can be believed."""

import sys
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from mathrag.cli.command_groups import Mutation
from mathrag.cli.failures import reported
from mathrag.cli.label_agreement import print_agreement
from mathrag.cli.output import AsJson, facts, print_json, table
from mathrag.client import labels
from mathrag.client.client import Client
from mathrag.client.errors import Failed
from mathrag.client.labels import LabelSet, Task
from mathrag.client.request import MOST_OF_A_PAGE
from shared.contracts.labels import KINDS

label = typer.Typer()

Name = Annotated[str, typer.Argument(metavar="NAME", help="Of the label set.")]
Open = Annotated[bool, typer.Option("--open", help="Not blind: with what the judge or the grader said.")]
ABSTAINED = "abstain"


@label.command(cls=Mutation)
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What you call the set.")],
    job: Annotated[str, typer.Option(help="Job that has ended: name, id, or its first characters.")],
    what: Annotated[str, typer.Option(help=f"One of {', '.join(KINDS)}.")] = "documents",
    size: Annotated[int, typer.Option(help="Most tasks.")] = 100,
    seed: Annotated[int, typer.Option(help="Another one draws other tasks.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Draw tasks from what a job's judge rated, or from its graded answers. The same again is harmless."""
    with reported(as_json=as_json), Client() as client:
        made = client.send(labels.create(name, job, what, size, seed))
        if as_json:
            print_json(made)
            return
        typer.echo(f"label set {name}: {made['tasks']} of {made['eligible']} {_things(made)} of {made['job_name']}")
        typer.echo(f"  next: mathrag label next {name}")


@label.command("list")
def list_sets(
    limit: Annotated[int, typer.Option(help="How many, newest first.")] = 50, as_json: AsJson = False
) -> None:
    """Label sets, newest first, with how far each labeller is."""
    with reported(as_json=as_json), Client() as client:
        found = list(islice(client.all(labels.listed(min(limit, MOST_OF_A_PAGE))), limit))
        if as_json:
            print_json(found)
        elif found:
            table(("NAME", "WHAT", "JOB", "TASKS", "LABELS", "LABELLERS"), map(_row, found))
        else:
            typer.echo("No label sets yet: mathrag label create --help")


def _row(found: LabelSet) -> tuple[object, ...]:
    given = sum(each["labels"] for each in found["labellers"])
    return found["name"], found["what"], found["job_name"], found["tasks"], given, len(found["labellers"])


@label.command()
def show(name: Name, as_json: AsJson = False) -> None:
    """One set: what it was drawn from, its scale, and how far each labeller is."""
    with reported(as_json=as_json), Client() as client:
        found = client.send(labels.get(name))
        if as_json:
            print_json(found)
            return
        typer.echo(f"label set {name}: {found['tasks']} of {found['eligible']} {_things(found)}")
        job = f"{found['job_name']} ({'purged' if found['purged'] else found['job']})"
        facts([("job", job), ("seed", found["seed"]), ("task", found["instructions"]), ("hash", found["hash"])])
        for each in found["labellers"]:
            same = f"{each['same']} as the {_system(found['what'])}"
            typer.echo(f"  {each['labeller']}: {each['labels']} labels, {same}; {each['abstained']} abstentions")


@label.command("next")
def following(name: Name, show_all: Open = False, as_json: AsJson = False) -> None:
    """What you have not labelled yet; blind unless --open is given."""
    with reported(as_json=as_json), Client() as client:
        found = client.send(labels.following(name, blind=not show_all))
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
    parts.append((f"the {_system(of['what'])}", task["system"]))
    for name, text in parts:
        if text not in (None, ""):
            typer.echo(f"{name}:\n{text}\n")
    options = " --open" if task["system"] is not None else ""
    scale = "|".join(map(str, of["scale"]))
    typer.echo(f"  next: mathrag label give {of['name']} {task['number']} {scale}|{ABSTAINED}{options}")


@label.command(cls=Mutation)
def give(
    name: Name,
    number: Annotated[int, typer.Argument(metavar="TASK", help="Its number, from 1.")],
    value: Annotated[str, typer.Argument(metavar="VALUE", help=f"On the set's scale; or {ABSTAINED}.")],
    note: Annotated[str, typer.Option(help="Why; up to 2000 characters.")] = "",
    was_open: Annotated[bool, typer.Option("--open", help="You saw what the judge or the grader said.")] = False,
    as_json: AsJson = False,
) -> None:
    """Label a task; labels are only added, and your last one of a task counts."""
    with reported(as_json=as_json), Client() as client:
        given = {"abstained": True} if value == ABSTAINED else {"value": int(value) if value.isdecimal() else value}
        label = client.send(labels.give(name, number, {**given, "note": note, "blind": not was_open}))
        if as_json:
            print_json(label)
            return
        said = "an abstention" if label["abstained"] else label["value"]
        typer.echo(f"task {number} of {name}: {said}\n  next: mathrag label next {name}")


@label.command()
def export(
    name: Name,
    out: Annotated[Path | None, typer.Option(help="File to write; else standard output.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it is there.")] = False,
    as_json: AsJson = False,
) -> None:
    """Every label, one JSON object a line: who, when, blind or not, of what, which value."""
    with reported(as_json=as_json), Client() as client:
        request = labels.exported(name)
        if out is None:
            sys.stdout.buffer.writelines(client.stream(request))
            sys.stdout.buffer.flush()
            return
        if out.exists() and not force:
            raise Failed("conflict", f"{out} is there already", hint="another file, or --force")
        client.save(request, out)
        if as_json:
            print_json({"set": name, "file": str(out)})
        elif not client.shows:
            typer.echo(f"the labels of {name} are in {out}")


@label.command()
def agreement(
    name: Name,
    count_open: Annotated[bool, typer.Option("--open", help="Count labels that were not given blindly, too.")] = False,
    seed: Annotated[int, typer.Option(help="Of the intervals' resamples.")] = 0,
    as_json: AsJson = False,
) -> None:
    """How far people agree with the judge or the grader, and with each other: kappa, alpha, confusion."""
    with reported(as_json=as_json), Client() as client:
        found = client.send(labels.agreement(name, seed, blind=not count_open))
        if as_json:
            print_json(found)
        else:
            print_agreement(found, _system(found["what"]))


@label.command()
def calibration(name: Name, as_json: AsJson = False) -> None:
    """What the judge's ratings are worth by blind labels; a job takes it with --set gate.labels=NAME."""
    with reported(as_json=as_json), Client() as client:
        found = client.send(labels.calibration(name))
        if as_json:
            print_json(found)
            return
        typer.echo(f"{found['judge']}, by labels of {found['tasks']} tasks: {found['hash']}")
        rows = [(each["rating"], each["tasks"], each["mean"], each["worth"]) for each in found["ratings"]]
        shown = [(rating, tasks, *(value and f"{value:.2f}" for value in figures)) for rating, tasks, *figures in rows]
        table(("RATING", "TASKS", "MEAN LABEL", "IS WORTH"), shown)
        typer.echo(f"  next: mathrag job submit ... --set gate.labels={name}")


def _system(what: str) -> str:
    """Who said what labels are held against."""
    kind: Any = what
    return KINDS[kind].judged_by


def _things(of: LabelSet) -> str:
    return "answers" if of["what"] == "answers" else "documents"
