"""Label sets: judgements of people, to compare with the judge and the grader."""

from typing import Any, Literal

from mathrag.client import labels
from mathrag.client.answers import (
    ExportedLabel,
    Label,
    LabelAgreement,
    LabelCalibration,
    LabelSet,
    LabelTask,
    NextTask,
)
from mathrag.client.operations import C, Group, Lines, Listing, Operation
from mathrag.client.request import MOST_OF_A_PAGE, Request, without_none


def create(
    name: str, job: str, what: Literal["documents", "relevance", "answers"], *, size: int = 100, seed: int = 0
) -> Request[Any]:
    """Draw a set of tasks from an ended job; repeating it returns the existing set."""
    return labels.create(name, job, what, size, seed)


def list_label_sets() -> Request[Any]:
    """List all label sets, newest first."""
    return labels.list_label_sets(MOST_OF_A_PAGE)


def get(name: str) -> Request[Any]:
    """Fetch a set with the progress of its labellers."""
    return labels.get(name)


def next_task(name: str, *, blind: bool = True) -> Request[Any]:
    """Fetch the first task that the owner of this key has not labelled; `blind` hides the results of the system."""
    return labels.next_task(name, blind=blind)


def task(name: str, number: int, *, blind: bool = True) -> Request[Any]:
    """Show a task of a label set."""
    return Request(path=f"{labels.at(name)}/tasks/{number}", query={"blind": blind})


def give(name: str, number: int, value: int | str | None, *, blind: bool = True, note: str = "") -> Request[Any]:
    """Label a task for the owner of this key; None means that the labeller cannot decide."""
    label = without_none({"value": value, "abstained": value is None, "blind": blind, "note": note})
    return labels.give(name, number, label)


def export(name: str) -> Request[Any]:
    """Download every label of a set with its task."""
    return labels.export(name)


def agreement(name: str, *, seed: int = 0, blind: bool = True) -> Request[Any]:
    """Measure how labellers agree with each other and with the judge or grader, with intervals."""
    return labels.agreement(name, seed, blind=blind)


def calibration(name: str) -> Request[Any]:
    """Show how the judge's ratings map to the set's labels."""
    return labels.calibration(name)


class Labels(Group[C]):
    """Label sets: judgements of people, to compare with the judge and the grader."""

    create = Operation(create, LabelSet)
    list = Listing(list_label_sets, LabelSet)
    get = Operation(get, LabelSet)
    next_task = Operation(next_task, NextTask)
    task = Operation(task, LabelTask)
    give = Operation(give, Label)
    export = Lines(export, ExportedLabel)
    agreement = Operation(agreement, LabelAgreement)
    calibration = Operation(calibration, LabelCalibration)
