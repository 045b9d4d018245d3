"""Measures how far people agree with the judge or the grader, and with each other, by the labels of one set."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import partial

import msgspec

from mathrag.messages import format_count
from shared.shapes import FEWEST, KINDS, Value, What, find_position
from shared.statistics.agreement import Coefficient, estimate_cohens_kappa, estimate_krippendorffs_alpha
from shared.storage.labels import CountedLabels, LabelSet

MOST = 20
"""Number of disagreements that are listed."""
NOTHING = Coefficient(value=None)
WORDS: dict[What, tuple[str, str]] = {
    "documents": ("documents", "the judge's rating"),
    "relevance": ("documents", "the judge's rating"),
    "answers": ("answers", "the grader's verdict"),
}
"""Words for what is labelled, and for what labels are compared with."""

Votes = Mapping[str, Value | None]
"""Label of a task by labeller; None is an abstention."""


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """Agreement of one labeller, or of the majority, with the judge or the grader."""

    labeller: str | None
    """Name of the labeller; null for the majority."""
    compared: int
    """Tasks that have both a label and a rating or verdict."""
    abstained: int
    same: int
    kappa: Coefficient
    """Cohen's kappa, unweighted."""
    weighted_kappa: Coefficient
    """Cohen's kappa with quadratic weights."""
    confusion: tuple[tuple[int, ...], ...]
    """Number of tasks as [label][rating or verdict], both in the order of the scale."""
    note: str | None
    """Why there is no kappa."""


class Alphas(msgspec.Struct, frozen=True, kw_only=True):
    """Krippendorff's alpha of several raters, by the distance between two ratings."""

    tasks: int
    """Tasks with two ratings or more."""
    nominal: Coefficient
    ordinal: Coefficient
    interval: Coefficient
    note: str | None
    """Why there is no alpha."""


class LabelDisagreement(msgspec.Struct, frozen=True, kw_only=True):
    """A task on which the majority disagrees with the judge or the grader."""

    number: int
    item: int | None
    repeat: int
    label: Value
    system: Value


class LabelAgreement(msgspec.Struct, frozen=True, kw_only=True):
    """Agreement figures of a label set; all intervals use one seed."""

    set: str
    what: What
    scale: tuple[Value, ...]
    blind: bool
    """Whether only blind labels count."""
    seed: int
    """Seed of the bootstrap resamples."""
    words: str
    tasks: int
    labelled: int
    """Tasks with a label or an abstention."""
    labels: int
    """Number of labels that count: of each labeller the last one of each task."""
    abstentions: int
    ties: int
    """Tasks without a majority, because several labels were given equally often."""
    majority: Held
    labellers: tuple[Held, ...]
    people: Alphas
    """Agreement among the labellers."""
    with_system: Alphas
    """Agreement among the labellers and the judge or the grader."""
    disagreements: tuple[LabelDisagreement, ...]
    """The first 20 disagreements, the largest first."""


def compute_agreement(of: LabelSet, counted: CountedLabels, *, blind: bool, seed: int) -> LabelAgreement:
    """Compute the agreement figures of the labels that count; it takes up to a second."""
    votes = [vote for labels in counted.labels.values() for vote in labels.values()]
    # The most frequent label of each task, or None if several labels are tied, and whether they are.
    leading: dict[int, tuple[Value | None, bool]] = {}
    for number, labels in counted.labels.items():
        most = Counter(_list_given(labels)).most_common(2)
        tied = len(most) > 1 and most[0][1] == most[1][1]
        leading[number] = (most[0][0] if most and not tied else None), tied
    system = {task.number: task.value for task in counted.tasks}
    compare = partial(_compare, of.what, system, seed)
    majority = compare(None, {number: vote for number, (vote, tied) in leading.items() if not tied})
    by_labeller: defaultdict[str, dict[int, Value | None]] = defaultdict(dict)
    for number, labels in counted.labels.items():
        for labeller, vote in labels.items():
            by_labeller[labeller][number] = vote
    # Of each labelled task, the positions of its labels on the scale; and these with the system's rating.
    people = [[find_position(of.what, vote) for vote in _list_given(votes)] for votes in counted.labels.values()]
    both = [
        [*labels, find_position(of.what, system[number])] for number, labels in zip(counted.labels, people, strict=True)
    ]
    disagreements = [
        LabelDisagreement(number=task.number, item=task.item, repeat=task.repeat, label=label, system=task.value)
        for task in counted.tasks
        if (label := leading.get(task.number, (None, False))[0]) is not None and label != task.value
    ]
    disagreements.sort(key=lambda each: -abs(find_position(of.what, each.label) - find_position(of.what, each.system)))
    return LabelAgreement(
        set=of.name,
        what=of.what,
        scale=of.scale,
        blind=blind,
        seed=seed,
        words=_write_sentence(of.what, majority),
        tasks=of.tasks,
        labelled=len(counted.labels),
        labels=len(votes) - votes.count(None),
        abstentions=votes.count(None),
        ties=sum(tied for _, tied in leading.values()),
        majority=majority,
        labellers=tuple(compare(name, by_labeller[name]) for name in sorted(by_labeller)),
        people=_compute_alphas(of.what, people, "labels of two people", seed),
        with_system=_compute_alphas(of.what, both, f"a label and {WORDS[of.what][1]}", seed),
        disagreements=tuple(disagreements[:MOST]),
    )


def _write_sentence(what: What, majority: Held) -> str:
    things, _ = WORDS[what]
    if not majority.compared:
        return f"Nobody has labelled any of the {things} yet."
    sentence = f"People and the {KINDS[what].judged_by} say the same of {majority.same} of {majority.compared} {things}"
    name, found = ("kappa", majority.kappa) if what == "answers" else ("weighted kappa", majority.weighted_kappa)
    if found.value is None:
        return f"{sentence}; {majority.note}."
    span = "" if found.low is None or found.high is None else f" (95 %: {found.low:.2f} to {found.high:.2f})"
    return f"{sentence}; {name} {found.value:.2f}{span}."


def _list_given(votes: Votes) -> list[Value]:
    return [vote for vote in votes.values() if vote is not None]


def _compare(
    what: What, system: Mapping[int, Value], seed: int, labeller: str | None, said: Mapping[int, Value | None]
) -> Held:
    pairs = [
        (find_position(what, vote), find_position(what, system[number]))
        for number, vote in said.items()
        if vote is not None
    ]
    counts, scale = Counter(pairs), range(len(KINDS[what].scale))
    note = _explain_undefined_kappa(what, pairs)
    kappa, weighted = (
        NOTHING if note else estimate_cohens_kappa(pairs, len(scale), level, seed) for level in ("nominal", "interval")
    )
    return Held(
        labeller=labeller,
        compared=len(pairs),
        abstained=len(said) - len(pairs),
        same=sum(one == other for one, other in pairs),
        kappa=kappa,
        weighted_kappa=weighted,
        confusion=tuple(tuple(counts[one, other] for other in scale) for one in scale),
        note=note,
    )


def _compute_alphas(what: What, raters: Sequence[Sequence[int]], rated: str, seed: int) -> Alphas:
    units = [unit for unit in raters if len(unit) > 1]
    scale, enough = len(KINDS[what].scale), len(units) >= FEWEST
    nominal, ordinal, interval = (
        estimate_krippendorffs_alpha(units, scale, level, seed) if enough else NOTHING
        for level in ("nominal", "ordinal", "interval")
    )
    note = None if enough else _explain_too_few(len(units), rated)
    if enough and interval.value is None:
        note = "all ratings are the same, so chance alone explains the agreement"
    return Alphas(tasks=len(units), nominal=nominal, ordinal=ordinal, interval=interval, note=note)


def _explain_undefined_kappa(what: What, pairs: Sequence[tuple[int, int]]) -> str | None:
    """Return why there is no kappa: raters who give the same value to everything agree by chance alone."""
    if len(pairs) < FEWEST:
        return _explain_too_few(len(pairs), f"a label and {WORDS[what][1]}")
    labels, system = map(set, zip(*pairs, strict=True))
    if len(labels) > 1 and len(system) > 1:
        return None
    who = "the labels say" if len(labels) == 1 else f"the {KINDS[what].judged_by} says"
    return f"{who} the same of all of them, so kappa is undefined"


def _explain_too_few(tasks: int, rated: str) -> str:
    return f"{format_count(tasks, 'task has', 'tasks have')} {rated}: figures of agreement begin at {FEWEST}"
