"""`mathrag reproduce math`: what is wrong is said before anything is begun, with what to do next; then all of it."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import msgspec
import pytest
import yaml
from click.testing import Result

from mathrag.cli.failures import Exit
from mathrag.reproduction import preset as presets
from mathrag.reproduction import record
from shared.pages.figures import library
from tests.doubles.chat_server import ChatServer
from tests.doubles.ollama_models import SHOWN
from tests.doubles.ollama_server import Ollama, serve_ollama
from tests.unit.commands import Server, mathrag
from tests.unit.mathrag.cli.programs import stay_here
from tests.unit.reproductions import GATE, JOB, report, write

JUDGE, GENERATOR = "qwen2.5:0.5b-instruct", "qwen2.5:7b-instruct-q4_K_M"
VARIANTS = ("dense", "sparse", "hybrid", "gate")
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


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    empty = SimpleNamespace(vegalite_to_svg=lambda *_, **__: "<svg />", svg_to_png=lambda *_, **__: b"")
    monkeypatch.setattr(library, "import_converter", lambda: empty)


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
def test_too_little_memory_for_one_model_says_which_and_what_would_fit(
    data: Path, double: Ollama, ollama: ChatServer
) -> None:
    ended = math(data, "--server", ollama.url, "--embedder", "shipped", "--budget", "6500")
    said, fix = refused(ended, data)
    assert said.startswith("memory: qwen2.5-7b-instruct needs ")
    assert said.endswith("MiB, gpu:0 has 6500 for models")
    assert fix.startswith("--slots 2 (and OLLAMA_NUM_PARALLEL=2 of the server)")


@pytest.mark.usefixtures("here")
def test_an_embedder_that_is_not_there_is_named(data: Path, ollama: ChatServer) -> None:
    said, fix = refused(math(data, "--server", ollama.url), data)
    assert said.startswith("embeddings: ")
    assert str(data / "bge-small-en-v1.5-f16.gguf") in said
    assert "--embedder" in fix


def test_a_wrong_file_of_problems_is_said_before_any_model_is_looked_at(data: Path) -> None:
    ended = math(data, "--corpus", str(data / "test.jsonl"), "--server", "http://127.0.0.1:9")
    said, fix = refused(ended, data)
    assert (ended.exit_code, "must be the training set" in said) == (Exit.INVALID, True)
    assert "docs/how-to/math.md" in fix


def test_an_unknown_preset_is_said_with_those_that_are_known(data: Path) -> None:
    said, fix = refused(math(data, preset="papper"), data)
    assert "no preset 'papper'" in said
    assert "paper, paper-tgi, small" in fix


def test_a_preset_is_printed_to_begin_ones_own() -> None:
    assert mathrag("reproduce", "preset", "paper").stdout == presets.read_text("paper")


class Service:
    def __init__(self, **digests: str) -> None:
        self.digests = {"world-judge": "a" * 64, "world-generator": "b" * 64, **digests}
        self.experiments: dict[str, Any] = {}
        self.state = "completed"
        self.polls = 2
        self.posted: list[str] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        path = request.url.path
        if request.method == "POST":
            self.posted.append(path)
        answer = self._post(path, request) if request.method == "POST" else self._get(path)
        if answer is None:
            return httpx2.Response(404, json={"type": "urn:mathrag:not_found", "detail": f"no {path}", "hint": None})
        return httpx2.Response(200, json=answer)

    def _post(self, path: str, request: httpx2.Request) -> Any:
        match path:
            case "/v1/corpora":
                return {"documents": request.content.count(b"\n"), "skipped": 0, "rejected": 0, "rejected_lines": []}
            case "/v1/datasets":
                return {"items": request.content.count(b"\n")}
            case "/v1/experiments/plan":
                return PLAN
            case "/v1/experiments":
                body = msgspec.json.decode(request.content)
                self.experiments[body["name"]] = body
                return self._standing(body["name"])
        return self._standing(path.split("/")[3])  # resume

    def _get(self, path: str) -> Any:
        match path.split("/")[1:]:
            case ["readyz"]:
                return {"ready": True, "checks": [{"name": "redis", "ok": True, "detail": "", "fix": ""}]}
            case ["v1", "models"]:
                return [self._model("judge"), self._model("generator", "generate")]
            case ["v1", "jobs", job, "report"]:
                number = int(job[-2:])
                return report(number, 80 + number, gate=GATE if number == 3 else None)
            case ["v1", "jobs", _]:
                return {"state": "failed", "reason": "the judge's replies have no rating"}
            case ["v1", "experiments", name, *rest] if name in self.experiments:
                return {"name": name, **REPORT} if rest else self._standing(name)
        return None

    def _model(self, name: str, role: str = "") -> dict[str, Any]:
        full = f"world-{name}"
        return {"name": full, "default_for": [role or name], "registered": True, "digest": self.digests[full]}

    def _standing(self, name: str) -> dict[str, Any]:
        self.polls -= 1
        state = "running" if self.polls > 0 else self.state
        counts = {"total": 200, "completed": 100, "failed": 0, "in_progress": 100 if self.polls > 0 else 0}
        grid = [{"variant": variant, "job": JOB.format(n), "state": state, "point": {}} for n, variant in JOBS]
        return {
            "name": name,
            "id": name,
            "state": state,
            "eta_seconds": None,
            "jobs": {state: 4},
            "request_counts": counts,
            "grid": grid,
        }


JOBS = tuple(enumerate(VARIANTS))
CHOSEN = {"basis": "assumed"}
PLAN: dict[str, Any] = {
    "name": "x", "jobs": 4, "samples": 200, "calls": {"judge": {"most": 1200, "apart": 1200}},
    "plan": {"chosen": CHOSEN, "why": "staged: loads 2"}, "notes": ["counted once"],
}  # fmt: skip
PAIR = {"left": "gate", "right": "hybrid", "words": "not separable at n = 10"}
REPORT: dict[str, Any] = {"rows": [], "comparisons": {"pooled": {"pairs": [PAIR], "notes": []}, "datasets": {}}}


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch, server: Server) -> Service:
    made = Service()
    server(made)
    monkeypatch.setenv("MATHRAG_URL", ELSEWHERE)
    monkeypatch.setattr("mathrag.client.following.EXPERIMENT_POLL_S", 0.0)
    return made


def test_all_of_it_leaves_a_page_its_figures_and_its_data(data: Path, service: Service) -> None:
    ended = math(data, "--yes", preset="small")
    assert ended.exit_code == Exit.DONE, ended.output
    folder = data.parent / "out"
    assert "gate against hybrid: not separable at n = 10" in ended.stdout
    assert "gate against hybrid: not separable at n = 10" in (folder / "report.md").read_text()
    kept = msgspec.json.decode((folder / "report.json").read_bytes())
    assert list(kept["jobs"]) == list(VARIANTS)
    drawn = {file.name for file in (folder / "figures").iterdir()}
    assert {"accuracy.svg", "accuracy.png", "accuracy.json", "memory.svg", "rho-gate.svg"} <= drawn
    (asked,) = service.experiments.values()
    assert asked["repeats"] == 5
    assert asked["name"].startswith("math-small-")


@pytest.mark.usefixtures("undrawn")
def test_a_program_gets_a_preset_and_a_report_as_one_document_each(data: Path, service: Service) -> None:
    shown = mathrag("reproduce", "preset", "small", "--json")
    assert msgspec.json.decode(shown.stdout) == msgspec.yaml.decode(presets.read_text("small"))
    ended = math(data, "--yes", "--json", preset="small")
    assert msgspec.json.decode(ended.stdout) == msgspec.json.decode((data.parent / "out" / "report.json").read_bytes())
    assert "== Plan" in ended.stderr


@pytest.mark.usefixtures("undrawn")
def test_the_same_again_asks_for_what_failed_and_submits_nothing_new(data: Path, service: Service) -> None:
    math(data, "--yes", preset="small")
    service.posted.clear()
    assert math(data, "--yes", preset="small").exit_code == Exit.DONE
    assert "/v1/experiments" not in service.posted
    assert any(path.endswith("/resume") for path in service.posted)


@pytest.mark.usefixtures("undrawn")
def test_a_model_that_changed_between_two_runs_is_refused(data: Path, service: Service) -> None:
    math(data, "--yes", preset="small")
    service.digests["world-generator"] = "c" * 64
    service.posted.clear()
    ended = math(data, "--yes", preset="small")
    assert ended.exit_code == Exit.CONFLICT
    assert f"world-generator was {'b' * 12} and is {'c' * 12} now" in ended.stderr
    assert f"fix: use --out {data.parent / 'out'}-2 for a new run" in ended.stderr
    assert service.posted == []


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
    assert ended.exit_code == Exit.USAGE
    assert "fix: run the same command with --yes" in ended.stderr
    assert "calls at most: judge 1,200" in ended.stdout
    assert "staged: loads 2 (times assumed)" in ended.stdout
    assert service.experiments == {}
    assert record.read(data.parent / "out") is None


def test_models_that_the_plan_finds_no_place_for_are_said_before_anything_is_submitted(
    data: Path, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    hopeless = {"chosen": None, "why": "world-judge fits nowhere: alone it needs 96 MiB of 50"}
    monkeypatch.setitem(PLAN, "plan", hopeless)
    ended = math(data, "--yes", preset="small")
    assert (ended.exit_code, service.experiments) == (Exit.UNREACHABLE, {})
    assert "error: no plan fits: world-judge fits nowhere" in ended.stderr


def test_a_job_that_failed_is_said_with_its_reason_and_the_same_command_goes_on(data: Path, service: Service) -> None:
    service.state = "failed"
    ended = math(data, "--yes", preset="small")
    assert ended.exit_code == Exit.UNREACHABLE
    assert "gate failed: the judge's replies have no rating" in ended.stderr
    assert "the same command again: it repeats only what failed" in ended.stderr
    assert not (data.parent / "out" / "report.md").exists()


@pytest.mark.usefixtures("undrawn")
def test_the_grid_of_weights_is_a_second_experiment(data: Path, service: Service) -> None:
    math(data, "--yes", "--heatmap", preset="small")
    names = sorted(service.experiments)
    assert [name.endswith("-weights") for name in names] == [False, True]
    assert service.experiments[names[1]]["repeats"] == 1


def test_what_a_service_of_its_own_is_told_is_a_file_that_it_reads(tmp_path: Path) -> None:
    preset = presets.apply_changes(presets.load("paper"), presets.Changes(), tmp_path)
    assert yaml.safe_load(yaml.safe_dump(preset.configuration)) == preset.configuration
