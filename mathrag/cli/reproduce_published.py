"""`mathrag reproduce published`: grade the paper's published answers again, next to the authors' own verdicts.

Every step can be run again: the dataset and the jobs that are there already are used.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

import msgspec
import typer

from mathrag.cli import progress
from mathrag.cli.failures import report_errors
from mathrag.cli.job import warn
from mathrag.cli.output import AsJson, print_json, print_table
from mathrag.client import jobs, texts
from mathrag.client.client import Client
from mathrag.client.errors import Failed
from mathrag.client.jobs import Job
from mathrag.reproduction.problems import CORPUS
from shared.errors import Invalid, InvalidLine, NotFound
from shared.ingest import lines, paths, rows
from shared.ingest.lines import Defect, Fields, Row
from shared.ingest.tables import ColumnNames
from shared.pages.formatting import format_accuracy
from shared.pipelines.imported import IMPORTED
from shared.plurals import format_count

T = TypeVar("T", bound=msgspec.Struct)
Method = Literal["dense", "sparse", "hybrid", "mathrag-gate"]
GATE: Method = "mathrag-gate"
EXPERIMENT = "20251124_184341"
"""The published experiment that is the paper's main table."""
GRADER = "math-dataset"
ITEMS, RESPONSES, RUNS = "items.jsonl", "responses.jsonl", "runs.csv"
FOLDER = "--data FOLDER; docs/reference/paper-table.md lists its files"
TRAINING = "--problems FILE names MATH's training set"
ANOTHER_NAME = "choose another name: --name NAME"

Data = Annotated[Path, typer.Option(help=f"Folder with {RUNS}, {RESPONSES} and {ITEMS}.")]
Training = Annotated[
    Path | None, typer.Option("--problems", help="MATH's training set, if --data does not contain it as train.jsonl.")
]
Experiment = Annotated[str, typer.Option(help="Experiment to grade; the default is the paper's main table.")]
Grader = Annotated[str, typer.Option(help="Grader of the answers, such as math.")]
Name = Annotated[str, typer.Option(help="Name of the dataset, with which the jobs' names begin.")]


class _Item(msgspec.Struct):
    """A line of items.jsonl: a question, and the number by which the runs call it."""

    item: int
    unique_id: str
    problem: str
    subject: str | None = None
    level: str | int | None = None


class _Problem(msgspec.Struct):
    """A problem of MATH's training set."""

    problem: str
    solution: str


class _Response(msgspec.Struct):
    """A line of responses.jsonl."""

    response: int
    text: str


class _Run(msgspec.Struct):
    """A row of runs.csv: what one run of a method answered, and the authors' verdict."""

    experiment: str
    run: int
    method: Method
    item: int
    response: int
    published_correct: bool


RUN_COLUMNS = ColumnNames(frozenset(_Run.__struct_fields__), frozenset(), frozenset())


def published(
    data: Data,
    problems: Training = None,
    experiment: Experiment = EXPERIMENT,
    grader: Grader = GRADER,
    name: Name = "published",
    as_json: AsJson = False,
) -> None:
    """Grade the paper's published answers again, and show both verdicts and the comparison with the gate.

    It imports one job for each method into the running service. Run again, it only prints the table.
    """
    with report_errors(as_json=as_json), Client() as client:
        items = {each.item: each for each in _read(_open(data / ITEMS), _Item)}
        answers = _read_answers(data, experiment, items)
        questions = _read_questions(_find_training_set(data, problems), items.values())
        client.send(texts.upload("datasets", _encode(questions), name))
        suffix = "".join(f"-{each}" for each in (experiment, grader) if each not in (EXPERIMENT, GRADER))
        made = {each: _import(client, f"{name}-{each}{suffix}", name, grader, given) for each, given in answers.items()}
        ended = {method: _wait(client, job) for method, job in made.items()}
        found = _make_table(client, answers, ended)
        if as_json:
            print_json({"experiment": experiment, "grader": grader, **found})
        else:
            _print(found, grader)


def _open(file: Path) -> Iterator[Row]:
    if not file.is_file():
        raise NotFound(f"there is no file {str(file)!r}", hint=FOLDER)
    with file.open("rb") as opened:
        yield from rows.read(opened, file.name, names=RUN_COLUMNS)


def _read(found: Iterable[Row], kind: type[T]) -> Iterator[T]:
    """Yield every row as a `kind`.

    Raises:
        InvalidLine: a row lacks a field, or has one of another type.
    """
    for source, number, content in found:
        try:
            yield msgspec.convert(lines.fields(content), kind, strict=False)
        except (Defect, msgspec.ValidationError) as error:
            raise InvalidLine(source, number, str(error)) from error


def _read_answers(data: Path, experiment: str, items: dict[int, _Item]) -> dict[Method, list[Fields]]:
    """Return the experiment's answers by method, as lines of an import.

    Raises:
        Invalid: a method has none, or a run names an item or a response that is not there.
    """
    responses = {each.response: each.text for each in _read(_open(data / RESPONSES), _Response)}
    answers: dict[Method, list[Fields]] = {method: [] for method in get_args(Method)}
    experiments = set()
    for run in _read(_open(data / RUNS), _Run):
        experiments.add(run.experiment)
        if run.experiment != experiment:
            continue
        for file, number, known in ((ITEMS, run.item, items), (RESPONSES, run.response, responses)):
            if number not in known:
                raise Invalid(f"{RUNS} names number {number} of {file}, which {data / file} does not contain")
        answers[run.method].append(
            {"id": items[run.item].unique_id, "repeat": run.run - 1, "text": responses[run.response],
             "score": int(run.published_correct)}
        )  # fmt: skip
    if lacking := [method for method, given in answers.items() if not given]:
        message = f"{data / RUNS} has no runs of {', '.join(lacking)} in experiment {experiment!r}"
        raise Invalid(message, hint=f"choose one of its experiments: {', '.join(sorted(experiments))}")
    return answers


def _find_training_set(data: Path, given: Path | None) -> Path:
    found = given or next((data / name for name in CORPUS if (data / name).exists()), None)
    if found is None:
        raise NotFound(f"{data} contains none of {', '.join(CORPUS)}", hint=TRAINING)
    return found


def _read_questions(file: Path, items: Iterable[_Item]) -> list[Fields]:
    """Return the questions as lines of a dataset, each with MATH's solution of the same problem.

    The text of the problem identifies it, because not every copy of MATH has ids.

    Raises:
        Invalid: the file lacks a problem.
    """
    asked = {" ".join(each.problem.split()): each for each in items}
    solutions: dict[str, str] = {}
    for each in _read(paths.corpus_lines(file), _Problem):
        if (problem := " ".join(each.problem.split())) in asked:
            solutions[problem] = each.solution
    if lacking := [item.unique_id for problem, item in asked.items() if problem not in solutions]:
        message = f"{file} lacks {len(lacking)} of the {len(asked)} questions, such as {lacking[0]}"
        raise Invalid(message, hint=TRAINING)
    return [{**msgspec.structs.asdict(each), "solution": solutions[problem]} for problem, each in asked.items()]


def _encode(found: list[Fields]) -> list[bytes]:
    return [msgspec.json.Encoder().encode_lines(found)]


def _import(client: Client, name: str, dataset: str, grader: str, answers: list[Fields]) -> Job:
    """Import the answers as a job, or return the job of this name if it grades the same dataset.

    Raises:
        Failed: another job has the name.
    """
    there = next(iter(client.send(jobs.list_jobs(1, name=name))["data"]), None)
    if there is None:
        made = client.send(jobs.import_answers(_encode(answers), name, dataset, grader=grader))
        imported = format_count(len(answers), "answer is", "answers are")
        typer.echo(f"{name}: {imported} imported and being graded", err=True)
        warn(made)
        return made
    report = client.send(jobs.report(there["id"]))
    used = report["settings"]["pipeline"], report["settings"]["dataset"], report["grader"]
    if used != (IMPORTED, dataset, grader):
        message = "job {} exists, and is of pipeline {}, dataset {} and grader {}".format(name, *used)
        raise Failed("conflict", message, ANOTHER_NAME)
    typer.echo(f"{name} is there already", err=True)
    return there


def _wait(client: Client, job: Job) -> Job:
    """Return the job once it has completed.

    Raises:
        Failed: it failed or was cancelled.
    """
    ended = progress.watch(client, job["id"], progress.Silent())
    if ended["state"] != "completed":
        message = f"job {ended['name']} is {ended['state']}: {ended['reason'] or 'no reason given'}"
        raise Failed("unavailable", message, f"to import its answers again, {ANOTHER_NAME}")
    return ended


def _make_table(client: Client, answers: dict[Method, list[Fields]], ended: dict[Method, Job]) -> dict[str, Any]:
    """Return both verdicts by method, and the comparison of every method with the gate."""
    methods = []
    for method, job in ended.items():
        report = client.send(jobs.report(job["id"]))
        right = sum(each["score"] for each in answers[method])
        methods.append(
            {"method": method, "job": job["id"], "published": right / len(answers[method]),
             "accuracy": report["accuracy"], "theirs": report["theirs"]}
        )  # fmt: skip
    compared = client.send(jobs.compare([job["id"] for job in ended.values()], ended[GATE]["id"]))
    return {"methods": methods, "comparison": compared}


def _print(found: dict[str, Any], grader: str) -> None:
    table = []
    for each in found["methods"]:
        theirs = each["theirs"] and f"{each['theirs']['differing']} of {each['theirs']['scored']}"
        table.append((each["method"], f"{100 * each['published']:.1f} %", format_accuracy(each["accuracy"]), theirs))
    print_table(("METHOD", "AUTHORS", f"THIS SERVICE ({grader}, WILSON 95 %)", "DIFFERENT VERDICTS"), table)
    typer.echo()
    pairs = found["comparison"]["pairs"]
    print_table(("JOB", "AGAINST", "VERDICT"), [(each["left"], each["right"], each["words"]) for each in pairs])
    for note in found["comparison"]["notes"]:
        typer.echo(f"  note: {note}")
