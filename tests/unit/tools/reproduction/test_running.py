"""How the reproduction asks the service: nothing twice, and what failed once more."""

import json
import socket
from pathlib import Path
from typing import Any

import httpx2
import pytest

from mathrag.client.client import Client
from mathrag.client.errors import Failed
from mathrag.demo.world import Setting
from tests.unit.commands import Server
from tools.reproduction import experiments
from tools.reproduction import world as world_module
from tools.reproduction.world import NOISES, SCALES, Study, World, studies

STUDY: Study = next(study for study in studies(SCALES["quick"]) if study.name == "noise")
WORLD = World("small", Setting(operators=3, items=4), 101)
WHERE = f"/v1/experiments/{STUDY.document()['name']}"
STANDING: dict[str, Any] = {
    "jobs": {}, "request_counts": {"total": 4, "in_progress": 0}, "eta_seconds": None,
    "created_at": "2026-11-22T01:00:00Z", "ended_at": "2026-11-22T01:01:30Z",
}  # fmt: skip
MISSING = {"type": "urn:mathrag:not_found", "title": "not found", "detail": "there is none", "status": 404}


class Service:
    def __init__(self, state: str | None, after: str = "completed") -> None:
        self.state, self.after = state, after
        self.posted: list[str] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        path = request.url.path
        if request.method == "POST":
            self.posted.append(path)
            self.state = self.after
            return httpx2.Response(202, json={})
        if path.endswith("/report"):
            return httpx2.Response(200, json={"rows": []})
        if self.state is None:
            return httpx2.Response(404, json=MISSING, headers={"content-type": "application/problem+json"})
        return httpx2.Response(200, json={**STANDING, "state": self.state})


@pytest.mark.parametrize(
    ("state", "posted"),
    [
        (None, ["/v1/experiments"]),
        ("completed", []),
        ("running", []),
        ("failed", [f"{WHERE}/resume"]),
        ("cancelled", [f"{WHERE}/resume"]),
    ],
)
def test_an_experiment_is_submitted_once_resumed_where_it_failed_and_else_only_read(
    server: Server, monkeypatch: pytest.MonkeyPatch, state: str | None, posted: list[str]
) -> None:
    service = Service(state)
    server(service)

    def passed(_: float) -> None:
        service.state = "completed"

    monkeypatch.setattr("tools.reproduction.experiments.time.sleep", passed)
    found = experiments.run(Client("http://127.0.0.1:1"), STUDY.document(), STUDY.name)
    assert service.posted == posted
    assert found == {"report": {"rows": []}, "seconds": 90.0}


def test_what_fails_again_ends_the_run_in_words(server: Server) -> None:
    server(Service("failed", after="failed"))
    with pytest.raises(Failed, match="is failed"):
        experiments.run(Client("http://127.0.0.1:1"), STUDY.document(), STUDY.name)


def test_only_what_the_service_does_not_have_is_uploaded(server: Server, tmp_path: Path) -> None:
    world_module.furnish(tmp_path, [WORLD])

    def answer(request: httpx2.Request) -> httpx2.Response:
        if request.method == "GET" and "/corpora/" not in request.url.path:
            return httpx2.Response(404, json=MISSING, headers={"content-type": "application/problem+json"})
        return httpx2.Response(200, json={})

    asked = server(answer)
    world_module.upload(Client("http://127.0.0.1:1"), tmp_path, [WORLD])
    (sent,) = (request for request in asked if request.method == "POST")
    assert sent.url.path == "/v1/datasets"
    assert sent.url.params["name"] == WORLD.name
    assert len(sent.content.splitlines()) == 4


def test_worlds_are_written_once(tmp_path: Path) -> None:
    world_module.furnish(tmp_path, [WORLD])
    kept = tmp_path / WORLD.name / "corpus.jsonl"
    kept.write_text("kept")
    world_module.furnish(tmp_path, [WORLD])
    assert kept.read_text() == "kept"


def test_the_oracles_stay_where_they_were(tmp_path: Path) -> None:
    port = world_module._choose_port(tmp_path)
    assert world_module._choose_port(tmp_path) == port
    models = json.loads((tmp_path / "mathrag.yaml").read_text())["models"]
    assert set(models) == {"world-judge", "world-generator", *(f"oracle-{noise}" for noise in NOISES)}


def test_somebody_else_s_server_is_not_taken_for_the_oracle(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(Failed, match=f"port {port} is taken"), world_module._oracle(tmp_path, port):
            pass
