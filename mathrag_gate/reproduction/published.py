"""Read the paper's published runs, repeat the verdicts of the authors' code, and write the page about both."""

import math
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Literal, TypeVar, get_args

import msgspec

from mathrag import intervals
from mathrag.client.request import Json
from mathrag.errors import Conflict, Invalid, InvalidLine, NotFound
from mathrag.formatting import format_interval
from mathrag.intervals import Interval
from mathrag.messages import format_count
from mathrag.reading import lines, paths, rows
from mathrag.reading.columns import Columns
from mathrag.reading.lines import Defect, Fields, Row
from mathrag.reading.tables import ColumnNames
from mathrag.report_lines import WORDS
from shared.pages.pages import find_block_names, table
from shared.params import GateParams
from shared.rag.gate import correlate
from shared.statistics.significance import LEVEL, compare_pair, compute_p, correct_family, describe_pair, reverse_pair

# The files; the last two and some columns are optional.

T = TypeVar("T", bound=msgspec.Struct)
Method = Literal["dense", "sparse", "hybrid", "mathrag-gate"]
METHODS: tuple[Method, ...] = get_args(Method)
GATE: Method = "mathrag-gate"
ITEMS, RESPONSES, RUNS = "items.jsonl", "responses.jsonl", "runs.csv"
SCORES, WEIGHTS = "gate-scores.csv", "weights.csv"
SEARCHED = 50
"""Number of questions in the authors' search over weights; weights.csv does not have it."""
FOLDER = "name the folder with --data DIR; docs/reference/paper-table.md lists its files"
TRAINING = "name MATH's training set with --problems FILE"
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


class Item(msgspec.Struct):
    """A line of items.jsonl: a question, and its number in the runs."""

    item: int
    unique_id: str
    problem: str
    subject: str | None = None
    level: str | int | None = None


class Problem(msgspec.Struct):
    """A problem of MATH's training set."""

    problem: str
    solution: str


class Response(msgspec.Struct):
    """A line of responses.jsonl."""

    response: int
    text: str


class Run(msgspec.Struct):
    """A row of runs.csv: the answer of one run of a method, and the authors' verdict."""

    experiment: str
    run: int
    method: Method
    item: int
    response: int
    published_correct: bool
    latency_s: Annotated[float, msgspec.Meta(ge=0)] | None = None
    """Seconds of generation."""
    published_recall_at_5: bool | None = None


class Scores(msgspec.Struct):
    """A row of gate-scores.csv: both scores of one document."""

    rule: Share
    judge: Share


class Weights(
    msgspec.Struct, rename={"rrf_weight": "RRF_Weight", "quality_weight": "Quality_Weight", "accuracy": "Accuracy"}
):
    """A row of weights.csv: the accuracy with two weights."""

    rrf_weight: float
    quality_weight: float
    accuracy: Share

    def __post_init__(self) -> None:
        """Raise ValueError if the accuracy is not a whole number of questions."""
        if not math.isclose(self.accuracy * SEARCHED, round(self.accuracy * SEARCHED), abs_tol=1e-6):
            raise ValueError(
                f"`Accuracy`: {self.accuracy} of {SEARCHED} questions is not a whole number of right answers"
            )


COLUMNS = {name for kind in (Run, Scores, Weights) for name in kind.__struct_encode_fields__}
COLUMN_NAMES = ColumnNames(Columns({name: (name,) for name in COLUMNS}), frozenset(), frozenset())


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """The published runs, with MATH's solutions of the questions."""

    items: dict[int, Item]
    responses: dict[int, str]
    every_run: list[Run]
    """Runs of all experiments."""
    runs: list[Run]
    """Runs of the chosen experiment."""
    solutions: dict[int, str]
    """MATH's solution by item."""
    others: list[str]
    """The other problems of MATH's training set, each with its solution."""
    scores: list[Scores] | None
    """Scores of documents; None if the file is missing."""
    weights: list[Weights] | None

    def list_questions(self) -> list[Fields]:
        """Return the questions as lines of a dataset."""
        return [
            {**msgspec.structs.asdict(each), "solution": self.solutions[number]} for number, each in self.items.items()
        ]

    def list_answers(self, method: Method) -> list[Fields]:
        """Return the method's answers as lines of an import."""
        return [
            {"id": self.items[run.item].unique_id, "repeat": run.run - 1, "text": self.responses[run.response],
             "score": int(run.published_correct)}
            for run in self.runs if run.method == method
        ]  # fmt: skip

    def share_right(self, method: Method) -> dict[int, Fraction]:
        """Return, by item, the share of the method's answers that the authors' verdicts call right."""
        verdicts = defaultdict(list)
        for run in self.runs:
            if run.method == method:
                verdicts[run.item].append(run.published_correct)
        return {item: Fraction(sum(found), len(found)) for item, found in verdicts.items()}


def read(data: Path, training: Path, experiment: str) -> Published:
    """Read the folder's files, and the solutions of the questions from MATH's training set.

    Problems are identified by their text, because not every copy of MATH has ids.

    Raises:
        NotFound: a file is missing.
        Invalid: a line cannot be read, a run names a missing line, a method has no runs, or a problem is missing.
    """
    listed = list(_read(_open(data / ITEMS), Item))
    items = {each.item: each for each in listed}
    texts = list(_read(_open(data / RESPONSES), Response))
    responses = {each.response: each.text for each in texts}
    for file, many, few in (
        (ITEMS, listed, items),
        (ITEMS, listed, {each.unique_id for each in listed}),
        (RESPONSES, texts, responses),
    ):
        if len(few) < len(many):
            raise Invalid(
                f"{data / file} has two lines with the same number or `unique_id`", hint="give each line its own"
            )
    runs = list(_read(_open(data / RUNS), Run))
    for run in runs:
        for file, number, known in ((ITEMS, run.item, items), (RESPONSES, run.response, responses)):
            if number not in known:
                raise Invalid(f"{RUNS} names number {number} of {file}, which {data / file} does not contain")
    chosen = [run for run in runs if run.experiment == experiment]
    if lacking := [method for method in METHODS if method not in {run.method for run in chosen}]:
        message = f"{data / RUNS} has no runs of {', '.join(lacking)} in experiment {experiment!r}"
        known_experiments = ", ".join(sorted({run.experiment for run in runs}))
        raise Invalid(message, hint=f"choose one of its experiments: {known_experiments}")
    problems = {" ".join(each.problem.split()): each for each in _read(paths.corpus_lines(training), Problem)}
    keys = {number: " ".join(each.problem.split()) for number, each in items.items()}
    if missing := [items[number].unique_id for number, key in keys.items() if key not in problems]:
        message = f"{training} lacks {len(missing)} of the {len(items)} questions, such as {missing[0]}"
        raise Invalid(message, hint=TRAINING)
    asked = set(keys.values())
    return Published(
        items=items,
        responses=responses,
        every_run=runs,
        runs=chosen,
        solutions={number: problems[key].solution for number, key in keys.items()},
        others=[f"{each.problem} {each.solution}" for key, each in problems.items() if key not in asked],
        scores=_read_optional(data / SCORES, Scores),
        weights=_read_optional(data / WEIGHTS, Weights),
    )


def _read_optional(file: Path, kind: type[T]) -> list[T] | None:
    return list(_read(_open(file), kind)) or None if file.exists() else None


def _open(file: Path) -> Iterator[Row]:
    if not file.is_file():
        raise NotFound(f"the file {str(file)!r} does not exist", hint=FOLDER)
    with file.open("rb") as opened:
        yield from rows.read(opened, file.name, names=COLUMN_NAMES)


def _read(found: Iterable[Row], kind: type[T]) -> Iterator[T]:
    """Yield every row as a `kind`.

    Raises:
        InvalidLine: a row lacks a field, or a field has another type.
    """
    for source, number, content in found:
        try:
            yield msgspec.convert(lines.fields(content), kind, strict=False)
        except (Defect, msgspec.ValidationError) as error:
            raise InvalidLine(source, number, str(error)) from error


# The authors' comparison (github.com/insensible104/MathRAG-Gate, commit 52c93bd, src/eval/evaluate.py).

NUMBER = re.compile(r"-?\d+\.?\d*")
BOX = re.compile(r"\\boxed\{([^}]+)\}")


def extract(text: str) -> tuple[str, str]:
    """Return the number that the authors' code extracts from a text, or "", and a note about lost parts.

    The code takes the last number in the first box, which ends at its first closing brace. Without a number there, it
    takes the last number of the text. An answer is right if its number equals that of MATH's solution as a string.
    """
    box = BOX.search(text)
    inside = NUMBER.findall(box[1]) if box else []
    if inside and box:
        cut = "box cut at its first brace" if "{" in box[1] else ""
        return inside[-1], cut or (f"last of {len(inside)} numbers in the box" if len(inside) > 1 else "")
    found = NUMBER.findall(text)
    return found[-1] if found else "", "last number of the text, because the box has none" if box else "no box"


# The page. Its blocks are computed, so that a page with other text around them can be checked against the data.

TAU = GateParams().tau
PER_CENT = 100
DRAWN = 5
"""Number of documents in the authors' "Recall@5"."""
SURE = 0.95
"""Probability above which random documents count as satisfying a question's "Recall@5"."""
TITLES = {
    "table": "The table", "authors": "The authors' grader", "verdicts": "Changed verdicts",
    "differences": "Differences", "gate": "Rules and judge", "weights": "The weight search",
    "latency": "Latency", "recall": "Recall@5",
}  # fmt: skip
"""Headings by block."""
Samples = Mapping[Method, Mapping[tuple[str, int], Json]]
"""This service's samples by method, unique id and repeat."""


def read_page(file: Path) -> str:
    """Return the text of the existing page, or of an empty one.

    Raises:
        Conflict: the file exists, and its computed blocks are not those of this page.
    """
    if not file.exists():
        sections = [f"## {title}\n\n<!-- {name}: computed -->\n<!-- end -->" for name, title in TITLES.items()]
        return "\n\n".join(["# The paper's published runs, graded again", *sections]) + "\n"
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        text = ""
    names = set(find_block_names(text))
    if not names or names - set(TITLES):
        raise Conflict(f"--out {file} exists and is not a page of this command", hint="choose another file")
    return text


def make_blocks(
    found: Published, methods: Sequence[Json], pairs: Sequence[Json], samples: Samples, grader: str
) -> dict[str, str]:
    """Return the content of each block of the page.

    Args:
        found: the published runs.
        methods: `accuracy` and `theirs` of this service's report, for each method.
        pairs: this service's comparison of each other method with the gate, in the order of `METHODS`.
        samples: this service's verdicts.
        grader: the grader that gave them.
    """
    return {
        "table": _write_table(found, methods, grader),
        "authors": _write_authors_grader(found),
        "verdicts": _write_verdicts(found, samples),
        "differences": _write_differences(found, pairs),
        "gate": _write_gate(found.scores) if found.scores else _leave_out(SCORES),
        "weights": _write_weights(found.weights) if found.weights else _leave_out(WEIGHTS),
        "latency": _write_latency(found),
        "recall": _write_recall(found),
    }


def _leave_out(what: str) -> str:
    return f"Left out: the folder has no `{what}`."


def _name(method: str) -> str:
    return method.removeprefix("mathrag-")


def _format_range(found: Interval) -> str:
    return f"{PER_CENT * found.low:.1f} to {PER_CENT * found.high:.1f}"


def _write_table(found: Published, methods: Sequence[Json], grader: str) -> str:
    written = []
    for each in methods:
        shares = found.share_right(each["method"])
        own = [run for run in found.runs if run.method == each["method"]]
        by_run = [[run.published_correct for run in own if run.run == number] for number in {run.run for run in own}]
        spread = intervals.measure_spread([(sum(verdicts), len(verdicts)) for verdicts in by_run])
        deviation = "" if spread.std is None else f" ± {PER_CENT * spread.std:.1f}"
        here, theirs = each["accuracy"], each["theirs"]
        written.append((
            _name(each["method"]),
            f"{PER_CENT * each['published']:.1f}{deviation}",
            _format_range(intervals.estimate_share(Counter(shares.values()))),
            "-" if here["value"] is None else f"{PER_CENT * here['value']:.1f} ({format_interval(here)})",
            theirs and f"{theirs['differing']} of {theirs['scored']}",
        ))  # fmt: skip
    head = ["method", "authors, ± over runs", "Wilson", f"this service, {grader}", "different verdicts"]
    return table(head, written)


def _write_verdicts(found: Published, samples: Samples) -> str:
    groups: dict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
    for run in found.runs:
        unique_id = found.items[run.item].unique_id
        here = samples[run.method][unique_id, run.run - 1]
        if here["correct"] is run.published_correct:
            continue
        sides = {"solution": extract(found.solutions[run.item]), "answer": extract(found.responses[run.response])}
        why = "; ".join(f"{side}: {lost}" for side, (_, lost) in sides.items() if lost)
        compared = ", ".join(_mark_code(number) for number, _ in sides.values())
        verdicts = WORDS[run.published_correct], WORDS[here["correct"]]
        answers = _mark_code(here["gold"]), _mark_code(here["answer"])
        groups[unique_id, *answers, compared, *verdicts, why or "compared as strings"][_name(run.method)] += 1
    if not groups:
        return "No verdict changed."
    head = ["item", "gold", "answer", "they compare", "authors", "here", "reason of the authors' verdict", "answers"]
    order = [_name(method) for method in METHODS]
    return table(
        head,
        [(*key, ", ".join(f"{name} {by[name]}" for name in order if by[name])) for key, by in groups.items()],
    )


def _mark_code(text: str | None) -> str:
    """Show the first 60 characters of a text in a cell of a table."""
    shown = " ".join((text or "").split())[:60].replace("|", "\\|").replace("`", "'")
    return f"`{shown}`" if shown else "none"


def _write_differences(found: Published, graded: Sequence[Json]) -> str:
    gate = found.share_right(GATE)
    others = [method for method in METHODS if method != GATE]
    pairs = []
    for method in others:
        shares = found.share_right(method)
        counts = Counter((gate[item], shares[item]) for item in shares.keys() & gate.keys())
        pairs.append(reverse_pair(compare_pair([counts], tests=len(others))))
    written = [
        (_name(method), pair and describe_pair(pair), again["words"])
        for method, pair, again in zip(others, correct_family(pairs), graded, strict=True)
    ]
    return (
        f"{table(['against the gate', 'by the published verdicts', 'graded again'], written)}\n\n"
        "Points with their bootstrap interval over items; p of the paired randomisation test, with Holm's correction "
        f"for {len(others)} tests."
    )


def _write_authors_grader(found: Published) -> str:
    golds = {number: extract(text)[0] for number, text in found.solutions.items()}
    answers = {number: extract(text)[0] for number, text in found.responses.items()}
    same = sum((golds[run.item] == answers[run.response]) is run.published_correct for run in found.every_run)
    experiments = len({run.experiment for run in found.every_run})
    return (
        "Their code takes the last number in the first box, which ends at its first closing brace, or else the last "
        "number of the text. An answer is right if MATH's solution gives the same string. Applied again, this rule "
        f"gives the published verdict of {same:,} of {len(found.every_run):,} answers ({experiments} experiments)."
    )


def _write_gate(scores: Sequence[Scores]) -> str:
    judged = [each.judge for each in scores]
    given = ", ".join(f"{score:g} ({count})" for score, count in sorted(Counter(judged).items(), reverse=True))
    zeros = judged.count(0)
    said = (
        f"The judge's scores of {len(scores)} documents are {given}: the rating / 5, and 0 if the reply has no rating "
        f"({zeros} documents)"
    )
    same = "" if zeros else ", so this service's (rating - 1) / 4 has the same rho"
    rho = correlate([each.rule for each in scores], judged, ("the rules", "the judge"))
    if rho.rho is None or rho.low is None or rho.high is None:
        return f"{said}. rho is undefined: {rho.undefined}."
    place = "below" if rho.high < TAU else "above" if rho.low > TAU else "on both sides of"
    return (
        f"{said}{same}. rho = {rho.rho:.3f} ({rho.low:.4f} to {rho.high:.3f}), Spearman's {rho.spearman:.3f}; the "
        f"interval lies {place} tau = {TAU:g}."
    )


def _write_weights(found: Sequence[Weights]) -> str:
    right = [(each, round(each.accuracy * SEARCHED)) for each in found]
    written = [
        (f"{each.rrf_weight:g}", f"{each.quality_weight:g}", f"{k} of {SEARCHED}",
         f"{PER_CENT * each.accuracy:.1f} ({_format_range(intervals.wilson(k, SEARCHED))})")
        for each, k in right
    ]  # fmt: skip
    apart = max(k for _, k in right) - min(k for _, k in right)
    # Of all splits with this difference, the one without a lost question has the smallest p.
    p = compute_p({Fraction(1): apart})
    verdict = (
        "no pair is separable"
        if p >= LEVEL
        else "the file does not show which questions were right, so p may be larger"
    )
    return (
        f"{table(['weight of the rank', 'weight of the quality', 'right', 'accuracy (Wilson)'], written)}\n\n"
        f"The best and the worst differ by {format_count(apart, 'right answer')}. Even if the best has all right "
        f"answers of the worst, p is {p:.3f} without any correction: {verdict}."
    )


def _write_latency(found: Published) -> str:
    seconds: dict[str, list[float]] = {_name(method): [] for method in METHODS}
    for run in found.runs:
        if run.latency_s is None:
            return _leave_out("latency_s` in `runs.csv")
        seconds[_name(run.method)].append(run.latency_s)
    written = []
    for name, own in seconds.items():
        last = statistics.quantiles(own, n=20, method="inclusive")[-1] if len(own) > 1 else own[0]
        figures = (statistics.fmean(own), statistics.median(own), last)
        written.append((name, len(own), *(f"{figure:.2f}" for figure in figures)))
    return (
        f"{table(['method', 'answers', 'mean, s', 'median, s', '95th percentile, s'], written)}\n\n"
        "Seconds of generation only. They include neither the search nor the judge's ratings, so they do not show what "
        "the gate costs."
    )


def _write_recall(found: Published) -> str:
    satisfied: dict[str, list[bool]] = {_name(method): [] for method in METHODS}
    missed = set()
    for run in found.runs:
        if run.published_recall_at_5 is None:
            return _leave_out("published_recall_at_5` in `runs.csv")
        satisfied[_name(run.method)].append(run.published_recall_at_5)
        missed |= set() if run.published_recall_at_5 else {run.item}
    counts = ", ".join(f"{name} {sum(own)} of {len(own)}" for name, own in satisfied.items())
    chances = [_chance_of_recall(solution, found.others) for solution in found.solutions.values()]
    likely = sum(chance >= SURE for chance in chances)
    return (
        "It is satisfied if any number of MATH's solution, for example a digit, occurs in one of the first five "
        f"documents: {counts}. Every method satisfies it in every run for {len(found.items) - len(missed)} of "
        f"{len(found.items)} questions. Five documents drawn at random from the other {len(found.others):,} of the "
        f"training set satisfy it with a probability of {PER_CENT * statistics.fmean(chances):.1f} % on average, and "
        f"of at least {PER_CENT * SURE:.0f} % for {likely} questions. For these "
        "questions it shows nothing about retrieval."
    )


def _chance_of_recall(solution: str, documents: Sequence[str]) -> float:
    """Return the probability that one of five documents, drawn without replacement, has a number of the solution."""
    numbers = set(NUMBER.findall(solution))
    n, k = len(documents), min(DRAWN, len(documents))
    without = sum(not any(number in document for number in numbers) for document in documents)
    return 1 - math.comb(without, k) / math.comb(n, k)
