"""How far people agree with the judge, or the grader, and with each other: of the labels of one set."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import partial

import msgspec

from shared.contracts.labels import FEWEST, KINDS, Value, What, place
from shared.statistics.agreement import Coefficient, cohens_kappa, krippendorffs_alpha
from shared.storage.label_sets import LabelSet
from shared.storage.labels import Counted

MOST = 20
"""Disagreements that are listed."""
NOTHING = Coefficient(value=None)
WORDS: dict[What, tuple[str, str]] = {
    "documents": ("documents", "the judge's rating"),
    "relevance": ("documents", "the judge's rating"),
    "answers": ("answers", "the grader's verdict"),
}
"""What is labelled, and what labels are held against."""

Votes = Mapping[str, Value | None]
"""What each labeller said of a task; None: abstained."""


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """One labeller's labels, or those of the majority, held against what the judge or the grader said."""

    labeller: str | None
    """None: the majority."""
    compared: int
    """Tasks with both."""
    abstained: int
    same: int
    kappa: Coefficient
    """Cohen's, unweighted."""
    weighted_kappa: Coefficient
    """Cohen's, with quadratic weights."""
    confusion: tuple[tuple[int, ...], ...]
    """[label][judge or grader] -> tasks, both in the order of the scale."""
    note: str | None
    """Why there is no figure."""


class Alphas(msgspec.Struct, frozen=True, kw_only=True):
    """Krippendorff's alpha of several raters, by how far two ratings are apart."""

    tasks: int
    """With two ratings or more."""
    nominal: Coefficient
    ordinal: Coefficient
    interval: Coefficient
    note: str | None
    """Why there is no figure."""


class LabelDisagreement(msgspec.Struct, frozen=True, kw_only=True):
    """A task of which the majority says something else than the judge or the grader."""

    number: int
    item: int | None
    repeat: int
    label: Value
    system: Value


class LabelAgreement(msgspec.Struct, frozen=True, kw_only=True):
    """What the labels of a set say, all intervals from one seed."""

    set: str
    what: What
    scale: tuple[Value, ...]
    blind: bool
    """Only labels that were given blindly count."""
    seed: int
    """Of the resamples."""
    words: str
    tasks: int
    labelled: int
    """Tasks with a label, or an abstention."""
    labels: int
    """That count: of each labeller the last one of each task."""
    abstentions: int
    ties: int
    """Tasks without a majority: several labels were given equally often, and most often."""
    majority: Held
    labellers: tuple[Held, ...]
    people: Alphas
    """Among the labellers."""
    with_system: Alphas
    """Among the labellers and the judge or the grader."""
    disagreements: tuple[LabelDisagreement, ...]
    """The first 20, those furthest apart first."""


def agreement(of: LabelSet, counted: Counted, *, blind: bool, seed: int) -> LabelAgreement:
    """What the labels that count say; it computes for up to a second."""
    votes = [vote for labels in counted.labels.values() for vote in labels.values()]
    leading = {number: _majority(labels) for number, labels in counted.labels.items()}
    compare = partial(_held, of.what, {task.number: task.value for task in counted.tasks}, seed)
    majority = compare(None, {number: vote for number, (vote, tied) in leading.items() if not tied})
    people, both = _raters(of.what, counted)
    return LabelAgreement(
        set=of.name,
        what=of.what,
        scale=of.scale,
        blind=blind,
        seed=seed,
        words=_words(of.what, majority),
        tasks=of.tasks,
        labelled=len(counted.labels),
        labels=len(votes) - votes.count(None),
        abstentions=votes.count(None),
        ties=sum(tied for _, tied in leading.values()),
        majority=majority,
        labellers=tuple(compare(name, said) for name, said in sorted(_by_labeller(counted).items())),
        people=_alphas(of.what, people, "labels of two people", seed),
        with_system=_alphas(of.what, both, f"a label and {WORDS[of.what][1]}", seed),
        disagreements=_disagreements(of.what, counted, leading),
    )


def _given(votes: Votes) -> list[Value]:
    return [vote for vote in votes.values() if vote is not None]


def _majority(votes: Votes) -> tuple[Value | None, bool]:
    """The label that was given most often, and whether several were: then there is none."""
    counts = Counter(_given(votes)).most_common(2)
    tied = len(counts) > 1 and counts[0][1] == counts[1][1]
    return (counts[0][0] if counts and not tied else None), tied


def _by_labeller(counted: Counted) -> dict[str, dict[int, Value | None]]:
    found: defaultdict[str, dict[int, Value | None]] = defaultdict(dict)
    for number, votes in counted.labels.items():
        for labeller, vote in votes.items():
            found[labeller][number] = vote
    return found


def _raters(what: What, counted: Counted) -> tuple[list[list[int]], list[list[int]]]:
    """Of each labelled task the places of its labels on the scale, and the same with the system's beside them."""
    system = {task.number: task.value for task in counted.tasks}
    people = [(number, [place(what, vote) for vote in _given(votes)]) for number, votes in counted.labels.items()]
    return [labels for _, labels in people], [[*labels, place(what, system[number])] for number, labels in people]


def _held(
    what: What, system: Mapping[int, Value], seed: int, labeller: str | None, said: Mapping[int, Value | None]
) -> Held:
    pairs = [(place(what, vote), place(what, system[number])) for number, vote in said.items() if vote is not None]
    counts, scale = Counter(pairs), range(len(KINDS[what].scale))
    note = _why_none(what, pairs)
    kappa, weighted = (
        NOTHING if note else cohens_kappa(pairs, len(scale), level, seed) for level in ("nominal", "interval")
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


def _alphas(what: What, raters: Sequence[Sequence[int]], rated: str, seed: int) -> Alphas:
    units = [unit for unit in raters if len(unit) > 1]
    scale, enough = len(KINDS[what].scale), len(units) >= FEWEST
    nominal, ordinal, interval = (
        krippendorffs_alpha(units, scale, level, seed) if enough else NOTHING
        for level in ("nominal", "ordinal", "interval")
    )
    note = None if enough else _too_few(len(units), rated)
    if enough and interval.value is None:
        note = "all ratings are the same, so chance alone would agree as well"
    return Alphas(tasks=len(units), nominal=nominal, ordinal=ordinal, interval=interval, note=note)


def _why_none(what: What, pairs: Sequence[tuple[int, int]]) -> str | None:
    """Why there is no kappa: whoever says the same of everything agrees with anybody as chance would."""
    if len(pairs) < FEWEST:
        return _too_few(len(pairs), f"a label and {WORDS[what][1]}")
    labels, system = map(set, zip(*pairs, strict=True))
    if len(labels) > 1 and len(system) > 1:
        return None
    who = "the labels say" if len(labels) == 1 else f"the {KINDS[what].judged_by} says"
    return f"{who} the same of all of them, which tells nothing apart: there is no kappa"


def _too_few(tasks: int, rated: str) -> str:
    return f"{tasks} {'task has' if tasks == 1 else 'tasks have'} {rated}: figures of agreement begin at {FEWEST}"


def _words(what: What, majority: Held) -> str:
    things, _ = WORDS[what]
    system, found = KINDS[what].judged_by, majority.kappa if what == "answers" else majority.weighted_kappa
    if not majority.compared:
        return f"Nobody has labelled any of the {things} yet."
    said = f"People and the {system} say the same of {majority.same} of {majority.compared} {things}"
    if found.value is None:
        return f"{said}; {majority.note}."
    kappa = "kappa" if what == "answers" else "weighted kappa"
    span = "" if found.low is None or found.high is None else f" (95 %: {found.low:.2f} to {found.high:.2f})"
    return f"{said}; {kappa} {found.value:.2f}{span}."


def _disagreements(
    what: What, counted: Counted, leading: Mapping[int, tuple[Value | None, bool]]
) -> tuple[LabelDisagreement, ...]:
    found = [
        LabelDisagreement(number=task.number, item=task.item, repeat=task.repeat, label=label, system=task.value)
        for task in counted.tasks
        for label, _ in [leading.get(task.number, (None, False))]
        if label not in (None, task.value)
    ]
    found.sort(key=lambda each: -abs(place(what, each.label) - place(what, each.system)))
    return tuple(found[:MOST])
