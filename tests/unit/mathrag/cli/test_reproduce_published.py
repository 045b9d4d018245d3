"""`mathrag reproduce published`: what is sent of the published runs, what is printed, and what is said of bad files."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
from click.testing import Result

from mathrag.cli.output import Exit
from services.orchestrator.reports.comparison import EXAMPLE as COMPARISON
from tests.unit.commands import COUNTS, JOB, Server, mathrag
from tests.unit.mathrag.cli.published_runs import EXPERIMENT, METHODS, TEXTS, write_runs
from tests.unit.reproductions import write

NAMES = [f"published-{method}" for method in METHODS]


class ImportService:
    def __init__(self) -> None:
        self.jobs: dict[str, dict[str, Any]] = {}
        """By name, in the order in which they were imported; their number is their place."""
        self.graders: dict[str, str] = {}
        self.lines: dict[str, list[dict[str, Any]]] = {}
        self.posted: list[str] = []
        self.state = "completed"
        self.refusal: tuple[int, dict[str, Any]] | None = None
        """The answer to every upload of a dataset."""

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        query = dict(request.url.params)
        if request.method == "POST":
            self.posted.append(request.url.path)
            self.lines[query["name"]] = [msgspec.json.decode(line) for line in request.content.splitlines()]
        match request.url.path.split("/")[2:]:
            case ["datasets"]:
                status, answer = self.refusal or (201, {"name": query["name"], "items": 2})
                return httpx2.Response(status, json=answer)
            case ["jobs", "import"]:
                return httpx2.Response(202, json=self.add(query["name"], query["dataset"], query["grader"]))
            case ["jobs"]:
                found = [job for name, job in self.jobs.items() if name == query["name"]]
                return httpx2.Response(200, json={"data": found, "next_cursor": None})
            case ["jobs", id_, "report"]:
                return httpx2.Response(200, json=self.report(self.find(id_)))
            case ["jobs", id_]:
                return httpx2.Response(200, json={**self.find(id_), "state": self.state})
        return httpx2.Response(200, json=COMPARISON)

    def add(self, name: str, dataset: str, grader: str, pipeline: str = "imported") -> dict[str, Any]:
        id_ = f"{len(self.jobs):08}{JOB['id'][8:]}"
        self.graders[name] = grader
        self.jobs[name] = {**JOB, "id": id_, "name": name, "dataset": dataset, "pipeline": pipeline, "reason": "cut"}
        return {**self.jobs[name], "request_counts": COUNTS}

    def find(self, id_: str) -> dict[str, Any]:
        return next(job for job in self.jobs.values() if job["id"] == id_)

    def report(self, job: dict[str, Any]) -> dict[str, Any]:
        used = {"pipeline": job["pipeline"], "dataset": job["dataset"]}
        theirs = {"right": 3, "scored": 4, "differing": 1, "samples": [0]}
        accuracy = {"value": 0.9, "low": 0.826, "high": 0.945, "items": 100, "correct": 450, "graded": 500}
        return {"accuracy": accuracy, "grader": self.graders[job["name"]], "settings": used, "theirs": theirs}


@pytest.fixture
def imports(server: Server, monkeypatch: pytest.MonkeyPatch) -> ImportService:
    made = ImportService()
    server(made)
    monkeypatch.setenv("MATHRAG_URL", "https://rag.example.org")
    return made


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    write_runs(tmp_path)
    write(tmp_path / "train.jsonl", range(9))
    return tmp_path


def published(runs: Path, *options: str) -> Result:
    return mathrag("reproduce", "published", "--data", str(runs), *options)


def column(lines: Iterable[dict[str, Any]], *names: str) -> list[Any]:
    return [tuple(line[name] for name in names) for line in lines]


def test_the_questions_are_a_dataset_with_the_solutions_of_maths_training_set(runs: Path, imports: ImportService) -> None:
    training = runs / "train.jsonl"
    training.write_text(training.read_text().replace("What is 1 + 1?", "What is  1 +\\n1?"))
    ended = published(runs)
    assert ended.exit_code == Exit.DONE, ended.output
    asked = imports.lines["published"]
    assert column(asked, "unique_id", "problem") == [
        ("train/prealgebra/1.json", "What is 1 + 1?"), ("train/prealgebra/2.json", "What is 2 + 2?")
    ]  # fmt: skip
    assert [each["solution"] for each in asked] == ["It is \\boxed{2}.", "It is \\boxed{4}."]


def test_each_method_is_a_job_of_its_answers_with_the_authors_verdicts(runs: Path, imports: ImportService) -> None:
    published(runs)
    assert list(imports.jobs) == NAMES
    assert set(imports.graders.values()) == {"math-dataset"}
    for name in NAMES:
        assert column(imports.lines[name], "id", "repeat", "text", "score") == [
            ("train/prealgebra/1.json", 0, TEXTS[0], 1), ("train/prealgebra/2.json", 0, TEXTS[1], 0),
            ("train/prealgebra/1.json", 1, TEXTS[0], 1), ("train/prealgebra/2.json", 1, TEXTS[2], 1),
        ]  # fmt: skip


def test_both_verdicts_and_the_comparison_with_the_gate_are_printed(runs: Path, imports: ImportService) -> None:
    ended = published(runs)
    rows = [line.split("  ") for line in ended.stdout.splitlines() if "75.0 %" in line]
    assert [[cell.strip() for cell in row if cell] for row in rows] == [
        [method, "75.0 %", "90.0 % (82.6 to 94.5), mean of 100 items, 500 answers", "1 of 4"] for method in METHODS
    ]
    assert "gate  dense    not separable at n = 500: +0.8 points" in ended.stdout


def test_the_gate_is_what_every_method_is_compared_with(runs: Path, server: Server, imports: ImportService) -> None:
    requests = server(imports)
    published(runs)
    (asked,) = [request for request in requests if request.url.path == "/v1/comparison"]
    ids = [job["id"] for job in imports.jobs.values()]
    assert asked.url.params.multi_items() == [*(("job", id_) for id_ in ids), ("baseline", ids[-1])]


def test_json_has_all_figures_and_nothing_else_on_standard_output(runs: Path, imports: ImportService) -> None:
    found = msgspec.json.decode(published(runs, "--json").stdout)
    assert (found["experiment"], found["grader"]) == (EXPERIMENT, "math-dataset")
    assert column(found["methods"], "method", "published") == [(method, 0.75) for method in METHODS]
    assert found["comparison"] == COMPARISON


def test_a_second_run_imports_nothing(runs: Path, imports: ImportService) -> None:
    first = published(runs)
    imports.posted.clear()
    second = published(runs)
    assert (imports.posted, second.stdout) == (["/v1/datasets"], first.stdout)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        (("--grader", "math"), "published-dense-math"),
        (("--experiment", "20251125_000000"), "published-dense-20251125_000000"),
        (("--name", "again"), "again-dense"),
    ],
)
def test_other_options_are_other_jobs(runs: Path, imports: ImportService, options: tuple[str, str], name: str) -> None:
    published(runs)
    assert published(runs, *options).exit_code == Exit.DONE
    assert list(imports.jobs)[len(METHODS)] == name


@pytest.mark.parametrize(
    ("dataset", "grader", "pipeline"),
    [
        ("other", "math-dataset", "imported"),
        ("published", "text", "imported"),
        ("published", "math-dataset", "dense"),
    ],
)
def test_a_name_that_another_job_has_is_refused(
    runs: Path, imports: ImportService, dataset: str, grader: str, pipeline: str
) -> None:
    imports.add("published-sparse", dataset, grader, pipeline)
    ended = published(runs)
    assert ended.exit_code == Exit.CONFLICT
    said = f"job published-sparse exists, and is of pipeline {pipeline}, dataset {dataset} and grader {grader}"
    assert said in ended.stderr
    assert "fix: choose another name: --name NAME" in ended.stderr


def test_a_dataset_with_other_questions_is_refused_before_any_job(runs: Path, imports: ImportService) -> None:
    problem = {"type": "urn:mathrag:conflict", "detail": "dataset 'published' exists", "hint": "choose another name"}
    imports.refusal = 409, problem
    ended = published(runs)
    assert (ended.exit_code, imports.posted) == (Exit.CONFLICT, ["/v1/datasets"])


def test_a_job_that_did_not_complete_has_no_table(runs: Path, imports: ImportService) -> None:
    imports.state = "cancelled"
    ended = published(runs)
    assert (ended.exit_code, ended.stdout) == (Exit.UNREACHABLE, "")
    assert "job published-dense is cancelled: cut" in ended.stderr


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("runs.csv", None, "there is no file"),
        ("items.jsonl", '{"item": 1, "problem": "x"}\n', "items.jsonl, line 1: Object missing required field"),
        ("responses.jsonl", '{"response": 1,\n', "responses.jsonl, line 1: "),
        ("responses.jsonl", '{"response": 7, "text": ""}\n', "names number 1 of responses.jsonl"),
        ("runs.csv", "experiment,run,method,item,response,published_correct\nx,1,bm25,1,1,1\n", "runs.csv, line 2: "),
        ("runs.csv", "experiment,run,method,item,response,published_correct\nx,1,dense,1,1,maybe\n", "line 2: "),
        ("train.jsonl", None, "contains none of train.jsonl"),
        ("train.jsonl", '{"problem": "What is 1 + 1?", "solution": "2"}\n', "lacks 1 of the 2 questions"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_before_anything_is_sent(
    runs: Path, imports: ImportService, file: str, text: str | None, said: str
) -> None:
    (runs / file).unlink()
    if text is not None:
        (runs / file).write_text(text)
    ended = published(runs)
    assert said in ended.stderr
    assert (ended.exit_code in (Exit.NOT_FOUND, Exit.INVALID), imports.posted) == (True, [])


def test_an_experiment_without_runs_is_refused_with_those_that_there_are(runs: Path, imports: ImportService) -> None:
    ended = published(runs, "--experiment", "1999")
    assert "has no runs of dense, sparse, hybrid, mathrag-gate in experiment '1999'" in ended.stderr
    assert f"{EXPERIMENT}, 20251125_000000" in ended.stderr


def test_the_training_set_may_lie_elsewhere(runs: Path, imports: ImportService) -> None:
    (runs / "train.jsonl").rename(runs / "math.jsonl")
    assert published(runs, "--problems", str(runs / "math.jsonl")).exit_code == Exit.DONE
