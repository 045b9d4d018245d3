"""Write the first screen of a report: the comparison of systems for a reader without knowledge of statistics.

Everything follows from the API's figures and the stored samples; no sentence claims more than the test shows. All
functions are pure.
"""

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

import msgspec

from mathrag.formatting import explain_missing_answers, format_duration
from mathrag.messages import format_count
from mathrag.report_lines import format_usd
from shared.models.shipped import WARNING
from shared.pages.figures import AccuracyRow
from shared.pipelines import registry
from shared.samples import SampleRow

# Systems, under names that a reader understands.

PIPELINES = {
    "closed-book": "the model alone", "conversation": "the model alone", "crag": "corrected search results",
    "critic-loop": "repeated search", "dense": "search by meaning", "enhanced": "reworded questions",
    "enhanced-crag": "reworded questions and corrected search results", "hybrid": "search by meaning and words",
    "hyde": "search by drafted answers", "imported": "imported answers", "mathrag-gate": "reordered search results",
    "measured": "measured answers", "program-aided": "computed answers", "rulerag": "search by rules",
    "self-consistency": "a vote over several answers",
    "self-rag": "search on demand", "sparse": "search by words",
}  # fmt: skip
"""Words after "with" in a sentence, by pipeline."""
MOST_NAMED = 2
"""Largest number of systems that a sentence names; for more, it gives their number."""


class System(msgspec.Struct, frozen=True, kw_only=True):
    """One way of answering: a job, or the jobs of an experiment's variant over all its datasets."""

    name: str
    """Name in the comparison."""
    label: str
    """Label within a sentence."""
    heading: str
    """Label at the start of a line."""
    pipeline: str
    accuracy: Any
    reports: tuple[Any, ...]
    """Reports of its jobs."""

    def count(self, field: str) -> int:
        """Return the number of samples in this state."""
        return sum(report["request_counts"][field] for report in self.reports)


def make_systems(reports: Sequence[Any], compared: Any, given: Mapping[str, str]) -> list[System]:
    """Return the systems of a comparison in its order, or one for each report if nothing was compared.

    Args:
        reports: the reports of all jobs.
        compared: the API's comparison; None if nothing was compared.
        given: labels by the user, by a job's id or a system's name.
    """
    by_id = {report["id"]: report for report in reports}
    if compared:
        rows = [
            (
                each["name"],
                each["pipeline"],
                each["accuracy"],
                tuple(by_id[job] for job in each["jobs"] if job in by_id),
            )
            for each in compared["jobs"]
        ]
    else:
        rows = [(each["name"], each["settings"]["pipeline"], each["accuracy"], (each,)) for each in reports]
    choices = [list(_list_labels(name, pipeline, own)) for name, pipeline, _, own in rows]
    often = Counter(label for labels in choices for label in dict.fromkeys(labels))
    systems = []
    for labels, (name, pipeline, accuracy, own) in zip(choices, rows, strict=True):
        label = next((each for each in labels if often[each] == 1), labels[-1])
        heading = f"{label[:1].upper()}{label[1:]}"
        for key in (name, *(report["id"] for report in own if len(own) == 1)):
            if key in given:
                label = heading = given[key]
        systems.append(
            System(name=name, label=label, heading=heading, pipeline=pipeline, accuracy=accuracy, reports=own)
        )
    return systems


def _list_labels(name: str, pipeline: str, reports: Iterable[Any]) -> Iterator[str]:
    """Yield possible labels of a system; the first one that no other system has becomes its label."""
    settings = [report["settings"] for report in reports]
    plain = PIPELINES.get(pipeline, pipeline)
    yield plain
    yield f"{plain} by {', '.join(sorted({each['models'].get('generate', {}).get('name', '') for each in settings}))}"
    yield f"{plain} on {', '.join(sorted({each['dataset'] for each in settings}))}"
    yield f"{plain} ({name})"


def write_title(systems: Sequence[System]) -> str:
    """Return a title: the question that these systems answer."""
    if not systems:
        return "No job has a result yet"
    if len(systems) == 1:
        return f"How many questions are answered right with {systems[0].label}?"
    if len(systems) == 2:
        return f"Which gives more right answers: {systems[0].label} or {systems[1].label}?"
    return f"Which of {len(systems)} systems gives the most right answers?"


def make_rows(systems: Sequence[System], most: int) -> list[AccuracyRow]:
    """Return the rows of the chart: the accuracy of the first `most` systems."""
    return [
        AccuracyRow(
            label=each.heading, value=each.accuracy["value"], low=each.accuracy["low"], high=each.accuracy["high"],
            n=each.accuracy.get("items", each.accuracy["graded"]),
        )
        for each in systems[:most]
    ]  # fmt: skip


# The sentence: the result of the test, without its terms.


class Contest(msgspec.Struct, frozen=True, kw_only=True):
    """A tested pair of systems, ordered so that `better` has more right answers."""

    better: System
    other: System
    items: int
    only_better: int
    """Number of questions that only `better` answers right, or answers right more often."""
    only_other: int
    points: float
    """Difference in percentage points; 0 or more."""
    separable: bool
    """Chance does not explain the difference."""
    needed: int | None
    """Number of questions with which this difference would probably be told from chance; None without a difference."""
    beats_baseline: bool
    """`better` is the left side of the pair, so a baseline would be `other`."""
    is_partial: bool
    """Some questions have a verdict in only one of the two; the pair's figures do not count them."""


def list_contests(systems: Sequence[System], compared: Any) -> list[Contest]:
    """Return the pairs of a comparison that have common questions."""
    by_name = {system.name: system for system in systems}
    return [
        _make_contest(by_name[pair["left"]], by_name[pair["right"]], pair)
        for pair in (compared or {}).get("pairs", ())
        if pair["items"] and pair["difference"] and pair["difference"]["value"] is not None
    ]


def _make_contest(left: System, right: System, pair: Any) -> Contest:
    sides, counts = (left, right), (pair["gained"], pair["lost"])
    turned = -1 if pair["difference"]["value"] < 0 else 1
    return Contest(
        better=sides[::turned][0], other=sides[::turned][1], items=pair["items"], only_better=counts[::turned][0],
        only_other=counts[::turned][1], points=100 * abs(pair["difference"]["value"]), separable=pair["separable"],
        needed=pair["needed"], beats_baseline=turned > 0, is_partial=bool(pair["left_only"] or pair["right_only"]),
    )  # fmt: skip


def choose_contest(contests: Sequence[Contest], compared: Any) -> Contest | None:
    """Return the pair for the examples and the advice; None if no pair has common questions.

    With a baseline, the pair is the baseline and the system that beats it most, or that differs most from it. Without
    one, the pair is the best system and the one closest to it.
    """
    if not contests:
        return None
    if compared["baseline"] is not None:
        return max(contests, key=lambda each: (each.separable and each.beats_baseline, each.separable, each.points))
    best = _find_best({each.better.name: each.better for each in contests}.values())
    return min((each for each in contests if best in (each.better, each.other)), key=attrgetter("points"))


def _find_best(systems: Collection[System]) -> System:
    return max(systems, key=lambda each: each.accuracy["value"] or 0.0)


def write_sentence(systems: Sequence[System], contests: Sequence[Contest], baseline: str | None) -> str:
    """State the result in a sentence without terms of statistics.

    Args:
        systems: all systems; at least one.
        contests: their tested pairs; none if nothing was compared, or if no pair has common questions.
        baseline: name of the system that all others were compared with; None if every pair was compared.
    """
    known = [each for each in systems if each.accuracy["value"] is not None]
    if not known:
        return "No answer was graded, so the number of right answers is unknown."
    if len(systems) == 1:
        return _describe_one(systems[0])
    if not contests:
        return _describe_uncompared(known)
    if len(systems) == 2:
        return _describe_two(contests[0])
    if baseline is None:
        return _describe_best(systems, contests)
    base = next((each for each in systems if each.name == baseline), None)
    return _describe_baseline(base, contests) if base else _describe_grid(contests, baseline)


def _describe_one(system: System) -> str:
    found = system.accuracy
    between = f"{100 * found['low']:.0f} and {100 * found['high']:.0f} %"
    return (
        f"With {system.label}, {count_right(system)} are answered right; for all questions of this kind the share"
        f" probably lies between {between}."
    )


def _describe_uncompared(known: Sequence[System]) -> str:
    if len(known) < 2:
        return f"The systems cannot be compared: only the answers of one, {known[0].label}, were graded."
    low, high = (100 * find(each.accuracy["value"] for each in known) for find in (min, max))
    share = f"between {low:.0f} and {high:.0f} % of the questions"
    return f"{len(known)} systems answer {share} right; no test compared them."


def _describe_two(contest: Contest) -> str:
    better, other, n = contest.better, contest.other, format_count(contest.items, "question")
    if contest.separable and contest.is_partial:
        return (
            f"On the {n} graded for both, the share of right answers is {contest.points:.0f} percentage points higher"
            f" with {better.label} than with {other.label}: a difference that chance does not explain."
        )
    if contest.separable:
        return (
            f"With {better.label}, {count_right(better)} are answered right, against {count_right(other)} with"
            f" {other.label}: a difference that chance does not explain."
        )
    if not contest.only_better + contest.only_other:
        return f"No difference was found: on each of {n}, {better.label} and {other.label} are equally often right."
    none = f"No difference between {better.label} and {other.label} can be told from chance with {n}"
    if contest.is_partial:
        return f"{none} graded for both."
    return (
        f"{none}: {_count_shortly(better)} are answered right with the first, {_count_shortly(other)} with the second."
    )


def _describe_baseline(base: System, contests: Sequence[Contest]) -> str:
    ordered = sorted(contests, key=lambda each: -each.points)
    better = [each for each in ordered if each.separable and each.beats_baseline]
    worse = [each for each in ordered if each.separable and not each.beats_baseline]
    level = [each for each in ordered if not each.separable]
    if not better + worse:
        n = format_count(max(each.items for each in level), "question")
        whom = _name([each.better if each.beats_baseline else each.other for each in level], "other systems")
        return f"No difference between {base.label} and {whom} can be told from chance with {n}."
    parts = [f"more with {_name([each.better for each in better], 'other systems')}"] if better else []
    parts += [f"fewer with {_name([each.other for each in worse], 'other systems')}"] if worse else []
    explained = "this difference" if len(better + worse) == 1 else "these differences"
    right = count_right(base)
    sentence = (
        f"With {base.label}, {right} are answered right, {' and '.join(parts)}: chance does not explain {explained}."
    )
    if level:
        whom = _name([each.better if each.beats_baseline else each.other for each in level], "systems")
        where = " on the questions that they share" if any(each.is_partial for each in level) else ""
        sentence += f" From {whom} it cannot be told apart{where}."
    return sentence


def _describe_grid(contests: Sequence[Contest], baseline: str) -> str:
    """Describe an experiment in which every point of the grid has its own baseline."""
    n = len(contests)
    better = sum(each.separable and each.beats_baseline for each in contests)
    worse = sum(each.separable and not each.beats_baseline for each in contests)
    if not better + worse:
        return f"None of {n} comparisons with {baseline} at the same settings shows a difference beyond chance."
    return (
        f"Against {baseline} at the same settings, more questions are answered right in {better} of {n} comparisons and"
        f" fewer in {worse}: chance does not explain these differences."
    )


def _describe_best(systems: Sequence[System], contests: Sequence[Contest]) -> str:
    best = _find_best(systems)
    beaten = [each.other for each in contests if each.better is best and each.separable]
    level = [each for each in systems if each is not best and each not in beaten]
    if not beaten:
        least = f"With {best.label} most questions are answered right, {count_right(best)}"
        if any(each.separable for each in contests):
            return f"{least}, but chance may explain its lead over each of the others."
        n = format_count(max(each.items for each in contests), "question")
        return f"No difference between the {len(systems)} systems can be told from chance with {n}."
    head = f"With {best.label}, {count_right(best)} are answered right, more than with {_name(beaten, 'other systems')}"
    if level:
        return f"{head} by more than chance explains; from {_name(level, 'systems')} it cannot be told apart."
    return f"{head}: chance does not explain {'this difference' if len(beaten) == 1 else 'these differences'}."


def _name(systems: Sequence[System], noun: str) -> str:
    if len(systems) > MOST_NAMED:
        return f"{len(systems)} {noun}"
    return " and ".join(f"{each.label} ({_count_shortly(each)})" for each in systems)


def count_right(system: System) -> str:
    """Return text such as "122 of 150 questions", or a share if questions were asked several times."""
    found = system.accuracy
    if found.get("items", found["graded"]) == found["graded"]:
        return f"{found['correct']:,} of {found['graded']:,} questions"
    return f"{100 * found['value']:.0f} % of {found['items']:,} questions"


def _count_shortly(system: System) -> str:
    found = system.accuracy
    if found["value"] is None:
        return "none graded"
    is_counted = found.get("items", found["graded"]) == found["graded"]
    return f"{found['correct']}" if is_counted else f"{100 * found['value']:.0f} %"


# Cautions, facts, costs and next steps.

MOST_CAUTIONS = 3
"""Largest number of cautions on the first screen; the details have all."""
MANY = 0.05
"""Smallest share of failed answers at which the failures come first."""
USES = {"generate": "answers", "judge": "rates documents", "write": "rewords questions", "rerank": "orders documents"}
"""Duty of a model, by the role of its calls; the calls of `write` go to the judge."""


def list_cautions(systems: Sequence[System], violated: Collection[str]) -> list[str]:
    """Return the warnings that a reader needs before quoting the result.

    `violated` has the ids of the jobs whose audit found a problem.
    """
    found = [
        f"With {each.label}: {caution}" if len(systems) > 1 else f"{caution[:1].upper()}{caution[1:]}"
        for each in systems
        for caution in _list_own_cautions(each, violated)
    ]
    if len(found) <= MOST_CAUTIONS:
        return found
    return [*found[:MOST_CAUTIONS], f"{format_count(len(found) - MOST_CAUTIONS, 'more warning')}: see the jobs' pages."]


def _list_own_cautions(system: System, violated: Collection[str]) -> Iterator[str]:
    total = format_count(system.count("total"), "answer")
    if any(note.startswith(WARNING) for report in system.reports for note in report["notes"]):
        yield "the models of the demo gave these answers. They only know a made-up world, so the answers mean nothing."
    for report in system.reports:
        if unreadable := explain_missing_answers(report["extraction"], report["accuracy"]):
            yield f"{unreadable[:1].lower()}{unreadable[1:]}."
    if failed := system.count("failed"):
        yield f"{failed:,} of {total} failed; they count neither as right nor as wrong."
    if cancelled := system.count("cancelled"):
        yield f"{cancelled:,} of {total} were never made, because the job was cancelled."
    ungraded = system.count("completed") - system.accuracy["graded"]
    if ungraded > 0 and system.accuracy["value"] is not None:
        yield f"{ungraded:,} of {total} could not be graded."
    if any(report["id"] in violated for report in system.reports):
        yield "the check of the stored records found a problem."


def list_facts(systems: Sequence[System], documents: Mapping[str, int | None]) -> Iterator[tuple[str, str]]:
    """Yield the questions, the documents and the models.

    `documents` has the number of documents of each searched corpus; None if it is unknown.
    """
    reports = [report for system in systems for report in system.reports]
    items: dict[str, int] = {}
    models: dict[str, dict[str, None]] = {}
    for report in reports:
        settings = report["settings"]
        items[settings["dataset"]] = max(report["items"], items.get(settings["dataset"], 0))
        for role, use in USES.items():
            pinned = settings["models"].get("judge" if role == "write" else role)
            if role in report["calls_made"] and pinned:
                models.setdefault(pinned["name"], {})[use] = None
    yield "Questions", "; ".join(f"{count:,} (dataset {name})" for name, count in items.items())
    counted = (f"corpus {name}" if n is None else f"{n:,} (corpus {name})" for name, n in documents.items())
    yield "Documents", "; ".join(counted) or "none"
    yield "Models", "; ".join(f"{name} {' and '.join(uses)}" for name, uses in models.items()) or "none"


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """Cost of one system."""

    label: str
    right: str
    time: str
    """Time from submission to end."""
    calls: str
    """Calls of models, and the number of reused replies among them."""
    loads: str
    usd: str | None
    """Price of all calls, reused ones included; None if a price is missing."""


def list_costs(systems: Sequence[System]) -> list[Cost]:
    """Return the cost of each system."""
    return [_make_cost(each) for each in systems]


def _make_cost(system: System) -> Cost:
    seconds = [report["seconds"] for report in system.reports]
    reused = sum(report["calls_reused"].get(role, 0) for report in system.reports for role in USES)
    made = sum(report["model_calls"] for report in system.reports)
    prices = [report["cost"] and report["cost"]["all"] for report in system.reports]
    known = [price for price in prices if price is not None]
    is_timed = bool(seconds) and None not in seconds
    return Cost(
        label=system.heading,
        right="not graded" if system.accuracy["value"] is None else count_right(system).removesuffix(" questions"),
        time=format_duration(sum(seconds)) if is_timed else "not known",
        calls=f"{made:,}" + (f" ({reused:,} reused)" if reused else ""),
        loads=f"{sum(report['model_loads'] for report in system.reports):,}",
        usd=format_usd(sum(known)) if known and len(known) == len(prices) else None,
    )


def list_next_steps(systems: Sequence[System], contest: Contest | None) -> list[str]:
    """Return one or two sentences of advice that follow from the figures."""
    reports = [report for system in systems for report in system.reports]
    if any(explain_missing_answers(report["extraction"], report["accuracy"]) for report in reports):
        return ["First choose a grader that can read these answers, and run again: stored replies are reused."]
    if all(each.accuracy["value"] is None for each in systems):
        return ["Add the right answers to the questions, or choose a grader that fits them, and run again."]
    if any(each.count("failed") > MANY * each.count("total") for each in systems):
        return ["First find out why answers failed (the jobs' pages name the reason), and submit those again."]
    if contest is not None:
        return _advise(contest)
    if len(systems) > 1:
        return ["Let all systems answer the same questions, with right answers to grade by, and compare them."]
    wrong = systems[0].accuracy["graded"] - systems[0].accuracy["correct"]
    steps = ["Answer the same questions in another way: only a comparison shows whether this is good."]
    return [*steps, f"Read some of the {format_count(wrong, 'wrong answer')}."] if wrong else steps


def _advise(contest: Contest) -> list[str]:
    better, other = contest.better.label, contest.other.label
    if contest.separable:
        lost = "question" if contest.only_other == 1 else f"{contest.only_other:,} questions"
        read = f"Before you do, read the {lost} that only {other} gets right." if contest.only_other else ""
        return [f"Prefer {better} to {other}.", *filter(None, [read])]
    if contest.needed is None or contest.needed <= contest.items:
        return [f"Choose between {better} and {other} by time and cost, or ask more questions."]
    asked = f"about {contest.needed:,} questions instead of {contest.items:,}"
    return [
        f"To tell a difference of this size from chance, ask {asked}.",
        "If a difference of this size does not matter to you, choose by time and cost.",
    ]


# Examples: questions that one system answers right and the other wrong.

LONGEST_QUESTION, LONGEST_ANSWER, LONGEST_DOCUMENT = 260, 70, 130
"""Largest number of characters of each text on the first screen; the samples' pages have all."""
MOST_DOCUMENTS = 3
"""Largest number of documents that an example lists."""


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """A question to show, by its positions in the datasets of the compared jobs."""

    heading: str
    indexes: tuple[int, ...]
    """Index of the item in each job, in the order of the systems shown."""


def choose_differing(labels: tuple[str, str], left: Iterable[SampleRow], right: Iterable[SampleRow]) -> list[Choice]:
    """Choose a question that only the left job answers right, and one that only the right job does, if they exist.

    Questions match if text and expected answer are equal, at any position. The first short question of each kind is
    preferred that both jobs answered and whose prompts differ.
    """
    known = {
        _digest(row): (row.correct, row.index, row.answer is None, row.context)
        for row in left
        if row.repeat == 0 and row.correct is not None
    }
    best: dict[bool, tuple[tuple[object, ...], Choice]] = {}
    for row in right:
        was_right, index, has_none, context = known.get(_digest(row), (None, 0, False, ()))
        if was_right is None or row.repeat or row.correct is None or row.correct is was_right:
            continue
        one, two = labels if was_right else labels[::-1]
        unclear = len(row.question) > LONGEST_QUESTION, has_none or row.answer is None, row.context == context, index
        if was_right not in best or unclear < best[was_right][0]:
            best[was_right] = unclear, Choice(heading=f"Right with {one}, wrong with {two}", indexes=(index, row.index))
    return [best[is_left][1] for is_left in (True, False) if is_left in best]


def choose_alone(rows: Iterable[SampleRow]) -> list[Choice]:
    """Choose the first right and the first wrong answer of a job that was not compared; prefer short answers."""
    best: dict[bool, tuple[tuple[bool, bool, int], Choice]] = {}
    for row in rows:
        if row.repeat == 0 and row.correct is not None:
            unclear = len(row.question) > LONGEST_QUESTION, row.answer is None, row.index
            choice = Choice(heading="Answered right" if row.correct else "Answered wrong", indexes=(row.index,))
            if row.correct not in best or unclear < best[row.correct][0]:
                best[row.correct] = unclear, choice
    return [best[is_right][1] for is_right in (True, False) if is_right in best]


def _digest(row: SampleRow) -> bytes:
    return hashlib.sha256(msgspec.json.encode((row.question, row.gold))).digest()


def shorten(text: str, most: int) -> str:
    """Cut a text after a word to at most `most` characters, never within a formula; replace line breaks by spaces."""
    flat = " ".join(text.split())
    if len(flat) <= most:
        return flat
    cut = flat[: most - 1]
    cut = cut[: cut.rfind(" ")] if " " in cut else cut
    for opening, closing in (("$", "$"), ("\\(", "\\)"), ("\\[", "\\]")):
        is_open = cut.count("$") % 2 if opening == closing else cut.count(opening) > cut.count(closing)
        cut = cut[: cut.rfind(opening)] if is_open else cut
    return f"{cut.rstrip()} …"


# Relevant documents that reordering removed from the prompt.

REORDERS = {"mathrag-gate": "hybrid"}
"""Pipelines that reorder the documents of another pipeline, by name."""
Relevant = Mapping[int, Collection[str]]
"""Hashes of the relevant documents by the index of the item."""


def find_reordering(systems: Sequence[System]) -> tuple[System, System] | None:
    """Return a system that reorders documents, and one that only differs by not reordering; None if no pair exists.

    Both have one job, over the same dataset and corpus.
    """
    for one in systems:
        for other in systems:
            if REORDERS.get(one.pipeline) != other.pipeline or not len(one.reports) == len(other.reports) == 1:
                continue
            mine, others = one.reports[0]["settings"], other.reports[0]["settings"]
            if mine["params"] is None or others["params"] is None:
                continue
            read = registry.get(other.pipeline).select_read
            same = all(mine[part] == others[part] for part in ("dataset", "corpus"))
            if same and mine["corpus"] and read(mine["params"]) == read(others["params"]):
                return one, other
    return None


def describe_reordering(reordered: Iterable[SampleRow], plain: Iterable[SampleRow], relevant: Relevant) -> str | None:
    """Return the numbers of questions for which reordering removed all relevant documents from the prompt or added one.

    None if it did neither. Each question counts once, by its first answer.
    """
    before = {row.index: set(row.context) for row in plain if row.repeat == 0 and row.state == "completed"}
    had = removed = lacked = brought = 0
    for row in reordered:
        wanted = set(relevant.get(row.index, ()))
        if row.repeat or row.state != "completed" or row.index not in before or not wanted:
            continue
        has_now = bool(wanted & set(row.context))
        if wanted & before[row.index]:
            had, removed = had + 1, removed + (not has_now)
        else:
            lacked, brought = lacked + 1, brought + has_now
    parts = []
    if removed:
        parts.append(
            f"removed every relevant document from the prompt for {removed:,} of the {format_count(had, 'question')}"
            " whose prompt had one"
        )
    if brought:
        what = "one in" if removed else "a relevant document into the prompt"
        whose = f"{lacked:,}" if removed else format_count(lacked, "question")
        parts.append(f"put {what} for {brought:,} of the {whose} whose prompt had none")
    return f"Reordering {', and '.join(parts)}." if parts else None
