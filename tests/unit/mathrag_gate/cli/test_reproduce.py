"""`mathrag reproduce`: the whole of MATH, and published runs."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
import yaml
from click.testing import Result

from mathrag.cli.output import Exit
from mathrag_gate import report as report_module
from mathrag_gate.report import FigureData
from mathrag_gate.reproduction import preset as presets
from services.orchestrator.api.examples import make_example
from tests.doubles.chat_server import ChatServer
from tests.doubles.ollama_server import SHOWN, Ollama, serve_ollama
from tests.unit.bundles import folder, serve_file
from tests.unit.commands import COUNTS, JOB, Server, mathrag
from tests.unit.mathrag.cli.programs import stay_here
from tests.unit.reproductions import EXPERIMENT as PUBLISHED
from tests.unit.reproductions import METHODS, TEXTS, write, write_runs

# `mathrag reproduce math`: what is wrong is said before anything is begun, with what to do next; then all of it.

EXPERIMENT = make_example("ExperimentView")
PLAN = make_example("ExperimentPlan")
EXPERIMENT_REPORT = make_example("ExperimentReport")

JUDGE, GENERATOR = "qwen2.5:0.5b-instruct", "qwen2.5:7b-instruct-q4_K_M"
ELSEWHERE = "https://rag.example.org"


@pytest.fixture
def double() -> Ollama:
    made = Ollama(shown=SHOWN)
    made.pull(JUDGE)
    made.pull(GENERATOR)
    return made


@pytest.fixture
def ollama(double: Ollama) -> Iterator[ChatServer]:
    with serve_ollama(double) as server:
        yield server


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write(tmp_path / "data" / "train.jsonl", range(20))
    write(tmp_path / "data" / "test.jsonl", range(100, 110))
    return tmp_path / "data"


@pytest.fixture(autouse=True)
def _no_service(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("MATHRAG_URL", raising=False)
    monkeypatch.setenv("MATHRAG_CONFIG", str(tmp_path / "none.yaml"))


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    stay_here(monkeypatch)


@pytest.fixture(autouse=True)
def _nothing_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FigureData, "draw_figures", lambda *_: iter(()))
    monkeypatch.setattr(report_module, "list_figures", lambda *_: iter(()))


def math(data: Path, *options: str, preset: str = "paper") -> Result:
    folder = str(data.parent / "out")
    return mathrag(
        "reproduce", "math", "--preset", preset, "--data", str(data), "--items", "10", "--out", folder, *options
    )


def refused(ended: Result, data: Path) -> tuple[str, str]:
    assert not (data.parent / "out").exists()
    lines = ended.stderr.splitlines()
    assert lines[-2].startswith("error: "), ended.output
    return lines[-2].removeprefix("error: "), lines[-1].removeprefix("  fix: ")


def test_a_model_that_is_not_pulled_is_pulled_next(data: Path, double: Ollama, ollama: ChatServer) -> None:
    del double.pulled[GENERATOR]
    ended = math(data, "--server", ollama.url, "--embedder", "shipped")
    said, fix = refused(ended, data)
    assert ended.exit_code == Exit.UNREACHABLE
    assert f"ollama pull {GENERATOR};" in fix
    missing = f"{ollama.url} has no model {GENERATOR!r}: ollama pull {GENERATOR}; "
    assert said.startswith(f"model qwen2.5-7b-instruct: {missing}")
    assert "ok    model qwen2.5-0.5b-instruct" in ended.stdout


@pytest.mark.usefixtures("here")
def test_a_server_that_is_not_there_is_started_next(data: Path) -> None:
    said, fix = refused(math(data, "--server", "http://127.0.0.1:9", "--embedder", "shipped"), data)
    assert "no Ollama at http://127.0.0.1:9" in said
    assert fix == "OLLAMA_HOST=127.0.0.1:9 ollama serve"


@pytest.mark.usefixtures("here")
def test_a_server_that_is_too_old_is_replaced_next(data: Path, double: Ollama, ollama: ChatServer) -> None:
    double.version = "0.11.4"
    said, fix = refused(math(data, "--server", ollama.url, "--embedder", "shipped"), data)
    assert "is Ollama 0.11.4, which silently truncates prompts; install 0.12.6 or newer" in said
    assert fix.startswith("install a newer Ollama")


@pytest.mark.usefixtures("here")
def test_an_embedder_that_is_not_there_is_named(data: Path, ollama: ChatServer) -> None:
    said, fix = refused(math(data, "--server", ollama.url), data)
    assert said.startswith("embeddings: ")
    assert str(data / "bge-small-en-v1.5-f16.gguf") in said
    assert "--embedder" in fix


def test_a_missing_file_of_problems_is_said_before_any_model_is_looked_at(data: Path) -> None:
    (data / "test.jsonl").unlink()
    said, fix = refused(math(data, "--server", "http://127.0.0.1:9"), data)
    assert "contains none of test.jsonl" in said
    assert "docs/how-to/math.md" in fix


def test_an_unknown_preset_is_said_with_those_that_are_known(data: Path) -> None:
    said, fix = refused(math(data, preset="papper"), data)
    assert "preset 'papper' does not exist" in said
    assert "paper, paper-code, paper-tgi, small" in fix


def test_a_preset_is_printed_to_begin_ones_own() -> None:
    assert mathrag("reproduce", "preset", "paper").stdout == presets.read_text("paper")


class Service:
    def __init__(self, export: Path) -> None:
        self.export = folder(export)
        self.digests = {"world-judge": "a" * 64, "world-generator": "b" * 64}
        self.experiments: dict[str, Any] = {}
        self.state = "completed"
        self.polls = 2
        self.posted: list[str] = []
        self.plan = PLAN

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        path = request.url.path
        if request.method == "POST":
            self.posted.append(path)
            return httpx2.Response(200, json=self.post(path, request.content))
        match path.split("/")[1:]:
            case ["readyz"]:
                found: Any = {"ready": True, "checks": [{"name": "redis", "ok": True, "detail": "", "fix": ""}]}
            case ["v1", "models"]:
                found = [self.model("judge"), self.model("generator", "generate")]
            case ["v1", "experiments", name, *rest] if name in self.experiments:
                found = self.report(name) if rest else self.standing(name)
            case ["v1", "jobs", *_] if self.state == "completed":
                return serve_file(self.export, request)
            case ["v1", "jobs", _]:
                found = {"reason": "the judge's replies have no rating"}
            case _:
                problem = {"type": "urn:mathrag:not_found", "detail": f"no {path}", "hint": None}
                return httpx2.Response(404, json=problem)
        return httpx2.Response(200, json=found)

    def post(self, path: str, content: bytes) -> Any:
        match path:
            case "/v1/corpora":
                return {"documents": content.count(b"\n"), "skipped": 0, "rejected": 0, "rejected_lines": []}
            case "/v1/datasets":
                return {"items": content.count(b"\n")}
            case "/v1/experiments/plan":
                return self.plan
            case "/v1/experiments":
                body = msgspec.json.decode(content)
                self.experiments[body["name"]] = body
                return self.standing(body["name"])
        return self.standing(path.split("/")[3])  # resume

    def model(self, name: str, role: str = "") -> dict[str, Any]:
        full = f"world-{name}"
        return {"name": full, "default_for": [role or name], "registered": True, "digest": self.digests[full]}

    def standing(self, name: str) -> dict[str, Any]:
        self.polls -= 1
        state = "running" if self.polls > 0 else self.state
        grid = [{**EXPERIMENT["grid"][0], "variant": "gate", "state": state}]
        return {**EXPERIMENT, "id": name, "name": name, "state": state, "grid": grid}

    def report(self, name: str) -> dict[str, Any]:
        return {**EXPERIMENT_REPORT, "name": name, "rows": [{**EXPERIMENT_REPORT["rows"][0], "variant": "gate"}]}


@pytest.fixture
def service(server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Service:
    made = Service(tmp_path / "export")
    server(made)
    monkeypatch.setenv("MATHRAG_URL", ELSEWHERE)
    monkeypatch.setattr("mathrag.client.waiting.EXPERIMENT_POLL_S", 0.0)
    return made


def test_the_presets_experiment_ends_as_a_bundle_with_the_papers_figures_beside_ours(
    data: Path, service: Service
) -> None:
    ended = math(data, "--yes", preset="small")
    assert ended.exit_code == Exit.DONE, ended.output
    ((name, asked),) = service.experiments.items()
    assert name.startswith("math-small-")
    assert {**presets.load("small").experiment, **asked} == asked
    assert (data.parent / "out" / name / "index.html").is_file()
    row = next(line for line in ended.stdout.splitlines() if line.endswith("86.80 ± 1.10 %"))
    assert row.split()[:3] == ["gate", "61.0", "%"]


def test_a_program_gets_a_preset_and_the_reports_as_one_document_each(data: Path, service: Service) -> None:
    shown = mathrag("reproduce", "preset", "small", "--json")
    assert msgspec.json.decode(shown.stdout) == msgspec.yaml.decode(presets.read_text("small"))
    found = msgspec.json.decode(math(data, "--yes", "--json", preset="small").stdout)
    assert found["experiments"] == [service.report(name) for name in service.experiments]
    assert found["paper"]["dense"] == "86.00 ± 0.00 %"


def test_the_same_again_asks_for_what_failed_and_submits_nothing_new(data: Path, service: Service) -> None:
    math(data, "--yes", preset="small")
    service.posted.clear()
    assert math(data, preset="small").exit_code == Exit.DONE
    assert "/v1/experiments" not in service.posted
    assert any(path.endswith("/resume") for path in service.posted)


def test_a_model_that_changed_between_two_runs_makes_another_experiment(data: Path, service: Service) -> None:
    math(data, "--yes", preset="small")
    service.digests["world-generator"] = "c" * 64
    assert math(data, "--yes", preset="small").exit_code == Exit.DONE
    assert len(service.experiments) == 2
    assert all((data.parent / "out" / name / "index.html").is_file() for name in service.experiments)


def test_other_problems_make_another_experiment(data: Path, service: Service) -> None:
    math(data, "--yes", preset="small")
    for file, numbers in (("train.jsonl", range(21)), ("test.jsonl", range(200, 210))):
        write(data / file, numbers)
        math(data, "--yes", preset="small")
    places = [asked["datasets"][0] for asked in service.experiments.values()]
    assert [len({place[part] for place in places}) for part in ("corpus", "dataset")] == [2, 2]
    assert len(service.experiments) == 3


def test_a_service_with_other_models_than_the_presets_is_refused(data: Path, service: Service) -> None:
    ended = math(data, "--yes")
    assert (ended.exit_code, service.posted) == (Exit.CONFLICT, [])
    assert (
        "service at https://rag.example.org uses world-judge for judge, but the preset requires qwen2.5-0.5b-instruct"
        in ended.stderr
    )


def test_a_service_that_runs_is_not_configured_by_options(data: Path, service: Service) -> None:
    ended = math(data, "--yes", "--budget", "8000", preset="small")
    assert (ended.exit_code, service.posted) == (Exit.USAGE, [])
    assert "--budget cannot be used with MATHRAG_URL" in ended.stderr


def test_nothing_is_submitted_where_nobody_can_be_asked(data: Path, service: Service) -> None:
    ended = math(data, preset="small")
    assert (ended.exit_code, service.experiments) == (Exit.USAGE, {})
    assert "fix: run the same command with --yes" in ended.stderr
    assert PLAN["plan"]["why"] in ended.stdout


def test_models_that_the_plan_finds_no_place_for_are_said_before_anything_is_submitted(
    data: Path, service: Service
) -> None:
    why = "world-judge fits nowhere: alone it needs 96 MiB of 50"
    service.plan = {**PLAN, "plan": {**PLAN["plan"], "chosen": None, "why": why}}
    ended = math(data, "--yes", preset="small")
    assert (ended.exit_code, service.experiments) == (Exit.UNREACHABLE, {})
    assert "error: no plan fits: world-judge fits nowhere" in ended.stderr


def test_a_job_that_failed_is_said_with_its_reason_and_the_same_command_goes_on(data: Path, service: Service) -> None:
    service.state = "failed"
    ended = math(data, "--yes", preset="small")
    assert ended.exit_code == Exit.UNREACHABLE
    assert "gate failed: the judge's replies have no rating" in ended.stderr
    assert "the same command again: it only repeats the failed jobs" in ended.stderr
    assert not (data.parent / "out").exists()


def test_the_grid_of_weights_is_a_second_experiment(data: Path, service: Service) -> None:
    math(data, "--yes", "--heatmap", preset="small")
    plain, weights = service.experiments.values()
    assert weights["name"].startswith("math-small-weights-")
    assert ("grid" in plain, weights["repeats"]) == (False, 1)


def test_what_a_service_of_its_own_is_told_is_a_file_that_it_reads(tmp_path: Path) -> None:
    preset = presets.load("paper")
    preset.configure(tmp_path)
    assert yaml.safe_load(yaml.safe_dump(preset.configuration)) == preset.configuration


# `mathrag reproduce published`: what is sent of the published runs, what is printed, and what is said of bad files.

ONE_PAIR = make_example("Comparison")
COMPARISON = {**ONE_PAIR, "pairs": 3 * ONE_PAIR["pairs"]}

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
            case ["jobs", id_, "samples"]:
                return httpx2.Response(200, json={"data": self.samples(self.find(id_)), "next_cursor": None})
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

    def samples(self, job: dict[str, Any]) -> list[dict[str, Any]]:
        """Every answer is right here, as numbers; the last line of an import is the one that is listed first."""
        return [
            {"custom_id": line["id"], "repeat": line["repeat"], "correct": True, "gold": "4", "answer": "\\frac{8}{2}"}
            for line in reversed(self.lines[job["name"]])
        ]

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


def test_the_questions_are_a_dataset_with_the_solutions_of_maths_training_set(
    runs: Path, imports: ImportService
) -> None:
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
    assert (found["experiment"], found["grader"]) == (PUBLISHED, "math-dataset")
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
    [("other", "math-dataset", "imported"), ("published", "text", "imported"), ("published", "math-dataset", "dense")],
)
def test_a_name_that_another_job_has_is_refused(
    runs: Path, imports: ImportService, dataset: str, grader: str, pipeline: str
) -> None:
    imports.add("published-sparse", dataset, grader, pipeline)
    ended = published(runs)
    assert ended.exit_code == Exit.CONFLICT
    said = f"job published-sparse already exists, with pipeline {pipeline}, dataset {dataset} and grader {grader}"
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
    assert "job published-dense did not complete (cancelled): cut" in ended.stderr


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("runs.csv", None, "does not exist"),
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
    assert f"{PUBLISHED}, 20251125_000000" in ended.stderr


def test_the_training_set_may_lie_elsewhere(runs: Path, imports: ImportService) -> None:
    (runs / "train.jsonl").rename(runs / "math.jsonl")
    assert published(runs, "--problems", str(runs / "math.jsonl")).exit_code == Exit.DONE


def test_the_page_is_written_and_written_again_between_its_marks(
    runs: Path, imports: ImportService, tmp_path: Path
) -> None:
    page = tmp_path / "pages" / "page.md"
    assert published(runs, "--out", str(page)).exit_code == Exit.DONE
    text = page.read_text()
    changed = "| train/prealgebra/2.json | `4` | `\\frac{8}{2}` | `4`, `8` | wrong | right |"
    assert f"{changed} answer: box cut at its first brace | dense 1, sparse 1, hybrid 1, gate 1 |" in text
    assert "| dense | 75.0 ± 35.4 | 34.2 to 100.0 | 90.0 (82.6 to 94.5) | 1 of 4 |" in text
    page.write_text(f"# A page of one's own\n\n{text[text.index('<!--') :].replace(changed, 'old')}Its end.\n")
    assert published(runs, "--out", str(page)).exit_code == Exit.DONE
    assert page.read_text() == f"# A page of one's own\n\n{text[text.index('<!--') :]}Its end.\n"


def test_another_file_than_the_page_is_kept_and_nothing_is_sent(runs: Path, imports: ImportService) -> None:
    for text in ("notes", "<!-- strange: computed -->\n<!-- end -->\n<!-- table: computed -->\n<!-- end -->\n"):
        (runs / "notes.md").write_text(text)
        ended = published(runs, "--out", str(runs / "notes.md"))
        assert (ended.exit_code, imports.posted, (runs / "notes.md").read_text()) == (Exit.CONFLICT, [], text)
    assert "is not a page of this command" in ended.stderr
