"""`mathrag reproduce published`: what is sent of the published runs, what is printed, and what is said of bad files."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
from click.testing import Result

from mathrag.cli.output import Exit
from services.orchestrator.api.examples import make_example
from tests.unit.commands import COUNTS, JOB, Server, mathrag
from tests.unit.mathrag.cli.published_runs import EXPERIMENT, METHODS, TEXTS, write_runs
from tests.unit.reproductions import write

COMPARISON = make_example("Comparison")

NAMES = [f"published-{method}" for method in METHODS]


class Service:
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
def service(server: Server, monkeypatch: pytest.MonkeyPatch) -> Service:
    made = Service()
    server(made)
    monkeypatch.setenv("MATHRAG_URL", "https://rag.example.org")
    return made


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write_runs(tmp_path)
    write(tmp_path / "train.jsonl", range(9))
    return tmp_path


def published(data: Path, *options: str) -> Result:
    return mathrag("reproduce", "published", "--data", str(data), *options)


def column(lines: Iterable[dict[str, Any]], *names: str) -> list[Any]:
    return [tuple(line[name] for name in names) for line in lines]


def test_the_questions_are_a_dataset_with_the_solutions_of_maths_training_set(data: Path, service: Service) -> None:
    training = data / "train.jsonl"
    training.write_text(training.read_text().replace("What is 1 + 1?", "What is  1 +\\n1?"))
    ended = published(data)
    assert ended.exit_code == Exit.DONE, ended.output
    asked = service.lines["published"]
    assert column(asked, "unique_id", "problem") == [
        ("train/prealgebra/1.json", "What is 1 + 1?"), ("train/prealgebra/2.json", "What is 2 + 2?")
    ]  # fmt: skip
    assert [each["solution"] for each in asked] == ["It is \\boxed{2}.", "It is \\boxed{4}."]


def test_each_method_is_a_job_of_its_answers_with_the_authors_verdicts(data: Path, service: Service) -> None:
    published(data)
    assert list(service.jobs) == NAMES
    assert set(service.graders.values()) == {"math-dataset"}
    for name in NAMES:
        assert column(service.lines[name], "id", "repeat", "text", "score") == [
            ("train/prealgebra/1.json", 0, TEXTS[0], 1), ("train/prealgebra/2.json", 0, TEXTS[1], 0),
            ("train/prealgebra/1.json", 1, TEXTS[0], 1), ("train/prealgebra/2.json", 1, TEXTS[2], 1),
        ]  # fmt: skip


def test_both_verdicts_and_the_comparison_with_the_gate_are_printed(data: Path, service: Service) -> None:
    ended = published(data)
    rows = [line.split("  ") for line in ended.stdout.splitlines() if "75.0 %" in line]
    assert [[cell.strip() for cell in row if cell] for row in rows] == [
        [method, "75.0 %", "90.0 % (82.6 to 94.5), mean of 100 items, 500 answers", "1 of 4"] for method in METHODS
    ]
    assert "gate  dense    not separable at n = 500: +0.8 points" in ended.stdout


def test_the_gate_is_what_every_method_is_compared_with(data: Path, server: Server, service: Service) -> None:
    requests = server(service)
    published(data)
    (asked,) = [request for request in requests if request.url.path == "/v1/comparison"]
    ids = [job["id"] for job in service.jobs.values()]
    assert asked.url.params.multi_items() == [*(("job", id_) for id_ in ids), ("baseline", ids[-1])]


def test_json_has_all_figures_and_nothing_else_on_standard_output(data: Path, service: Service) -> None:
    found = msgspec.json.decode(published(data, "--json").stdout)
    assert (found["experiment"], found["grader"]) == (EXPERIMENT, "math-dataset")
    assert column(found["methods"], "method", "published") == [(method, 0.75) for method in METHODS]
    assert found["comparison"] == COMPARISON


def test_a_second_run_imports_nothing(data: Path, service: Service) -> None:
    first = published(data)
    service.posted.clear()
    second = published(data)
    assert (service.posted, second.stdout) == (["/v1/datasets"], first.stdout)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        (("--grader", "math"), "published-dense-math"),
        (("--experiment", "20251125_000000"), "published-dense-20251125_000000"),
        (("--name", "again"), "again-dense"),
    ],
)
def test_other_options_are_other_jobs(data: Path, service: Service, options: tuple[str, str], name: str) -> None:
    published(data)
    assert published(data, *options).exit_code == Exit.DONE
    assert list(service.jobs)[len(METHODS)] == name


@pytest.mark.parametrize(
    ("dataset", "grader", "pipeline"),
    [
        ("other", "math-dataset", "imported"),
        ("published", "text", "imported"),
        ("published", "math-dataset", "dense"),
    ],
)
def test_a_name_that_another_job_has_is_refused(
    data: Path, service: Service, dataset: str, grader: str, pipeline: str
) -> None:
    service.add("published-sparse", dataset, grader, pipeline)
    ended = published(data)
    assert ended.exit_code == Exit.CONFLICT
    said = f"job published-sparse exists, and is of pipeline {pipeline}, dataset {dataset} and grader {grader}"
    assert said in ended.stderr
    assert "fix: choose another name: --name NAME" in ended.stderr


def test_a_dataset_with_other_questions_is_refused_before_any_job(data: Path, service: Service) -> None:
    problem = {"type": "urn:mathrag:conflict", "detail": "dataset 'published' exists", "hint": "choose another name"}
    service.refusal = 409, problem
    ended = published(data)
    assert (ended.exit_code, service.posted) == (Exit.CONFLICT, ["/v1/datasets"])


def test_a_job_that_did_not_complete_has_no_table(data: Path, service: Service) -> None:
    service.state = "cancelled"
    ended = published(data)
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
    data: Path, service: Service, file: str, text: str | None, said: str
) -> None:
    (data / file).unlink()
    if text is not None:
        (data / file).write_text(text)
    ended = published(data)
    assert said in ended.stderr
    assert (ended.exit_code in (Exit.NOT_FOUND, Exit.INVALID), service.posted) == (True, [])


def test_an_experiment_without_runs_is_refused_with_those_that_there_are(data: Path, service: Service) -> None:
    ended = published(data, "--experiment", "1999")
    assert "has no runs of dense, sparse, hybrid, mathrag-gate in experiment '1999'" in ended.stderr
    assert f"{EXPERIMENT}, 20251125_000000" in ended.stderr


def test_the_training_set_may_lie_elsewhere(data: Path, service: Service) -> None:
    (data / "train.jsonl").rename(data / "math.jsonl")
    assert published(data, "--problems", str(data / "math.jsonl")).exit_code == Exit.DONE
