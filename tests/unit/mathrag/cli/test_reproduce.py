"""`mathrag reproduce math`: what is wrong is said before anything is begun, with what to do next; then all of it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
import yaml
from click.testing import Result

from mathrag import report as report_module
from mathrag.cli.output import Exit
from mathrag.report import FigureData
from mathrag.reproduction import preset as presets
from services.orchestrator.api.examples import make_example
from shared import installation
from shared.installation import install_command
from tests.doubles.chat_server import ChatServer
from tests.doubles.ollama_server import SHOWN, Ollama, serve_ollama
from tests.unit.bundles import folder, serve_file
from tests.unit.commands import Server, mathrag
from tests.unit.mathrag.cli.programs import stay_here
from tests.unit.reproductions import write

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


def test_without_the_extra_of_reports_nothing_is_begun(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "find_spec", lambda _: None)
    said, fix = refused(math(data, preset="small"), data)
    assert "`scipy` of the extra `report` is not installed" in said
    assert fix == install_command("report")


def test_an_unknown_preset_is_said_with_those_that_are_known(data: Path) -> None:
    said, fix = refused(math(data, preset="papper"), data)
    assert "no preset 'papper'" in said
    assert "paper, paper-tgi, small" in fix


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
        "world-judge answers judge at https://rag.example.org, but the preset requires qwen2.5-0.5b-instruct"
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
    assert "the same command again: it repeats only what failed" in ended.stderr
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
