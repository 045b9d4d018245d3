"""Label sets: judgements of people, to compare with the judge and the grader."""

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


class Labels(Group[C]):
    """Label sets: judgements of people, to compare with the judge and the grader."""

    create = Operation(labels.create, LabelSet)
    list = Listing(labels.list_label_sets, LabelSet)
    get = Operation(labels.get, LabelSet)
    next_task = Operation(labels.next_task, NextTask)
    task = Operation(labels.task, LabelTask)
    give = Operation(labels.give, Label)
    export = Lines(labels.export, ExportedLabel)
    agreement = Operation(labels.agreement, LabelAgreement)
    calibration = Operation(labels.calibration, LabelCalibration)
