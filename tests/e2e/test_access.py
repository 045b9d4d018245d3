"""A stack that asks for keys: who gets in, what is told, and that nothing anybody writes makes it open an address."""

import json
import socketserver
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import psutil
import pytest

from tests.running import DEADLINE_S, JUDGED, RunningStack, ended, mathrag, running_stack

SERVICE_KEY = "a-service-key-of-the-operator"
REQUIRED = {"MATHRAG_ACCESS__KEYS": "required", "MATHRAG_SERVICE_KEY": SERVICE_KEY}
PAGES = (
    "/v1/jobs", "/v1/jobs/{job}", "/v1/jobs/{job}/results", "/v1/jobs/{job}/samples", "/v1/jobs/{job}/samples/0",
    "/v1/jobs/{job}/report", "/v1/jobs/{job}/audit", "/v1/jobs/{job}/provenance",
    "/v1/models", "/v1/pipelines", "/v1/corpora", "/v1/datasets", "/v1/gpus", "/v1/gpus/cpu:0",
    "/readyz", "/healthz", "/metrics", "/docs", "/openapi.json", "/nowhere",
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("access")


@pytest.fixture(scope="module")
def closed(folder: Path) -> Iterator[RunningStack]:
    with running_stack(folder / "data", **REQUIRED) as running:
        made = mathrag("key", "create", "operator", "--scope", "operate", "--data-dir", str(running.data_dir))
        assert made.returncode == 0, made.stderr
        running.api.headers["authorization"] = f"Bearer {made.stdout.strip()}"
        running.furnish(folder / "world", items=10)
        yield running


@pytest.fixture(scope="module")
def job(closed: RunningStack) -> str:
    found = closed.submit("guarded", params=JUDGED)
    assert closed.wait(found, ended)["state"] == "completed"
    return found


def key_of(stack: RunningStack) -> str:
    return str(stack.api.headers["authorization"]).removeprefix("Bearer ")


def test_a_job_runs_where_every_hop_asks_for_a_key(closed: RunningStack, job: str) -> None:
    assert closed.get(f"/v1/jobs/{job}/audit")["clean"]


def test_strangers_get_in_nowhere(closed: RunningStack, job: str) -> None:
    with httpx2.Client(base_url=closed.url, trust_env=False) as stranger:
        assert {stranger.get(page.format(job=job)).status_code for page in PAGES if page != "/healthz"} == {401}
        assert stranger.get("/healthz").status_code == 200
    for child in closed.status()["stack"]["children"]:
        if child["name"] in ("guard", "retriever"):
            url = f"http://127.0.0.1:{child['port']}"
            assert httpx2.post(f"{url}/run", content=b"{}", trust_env=False).status_code == 401
            assert httpx2.get(f"{url}/state", trust_env=False).status_code == 401
            assert httpx2.get(f"{url}/healthz", trust_env=False).status_code == 200


def test_the_command_line_takes_the_key_from_the_environment(closed: RunningStack, job: str) -> None:
    assert mathrag("job", "report", job, MATHRAG_URL=closed.url, MATHRAG_API_KEY=key_of(closed)).returncode == 0
    refused = mathrag("job", "report", job, MATHRAG_URL=closed.url, MATHRAG_API_KEY="")
    assert refused.returncode != 0
    assert "MATHRAG_API_KEY" in refused.stderr


def test_a_revoked_key_is_worth_nothing(closed: RunningStack) -> None:
    directory = ("--data-dir", str(closed.data_dir))
    key = mathrag("key", "create", "passing", "--scope", "read", *directory).stdout.strip()
    with httpx2.Client(base_url=closed.url, trust_env=False, headers={"authorization": f"Bearer {key}"}) as api:
        assert api.get("/v1/models").status_code == 200
        assert mathrag("key", "revoke", "passing", *directory).returncode == 0
        deadline = time.monotonic() + DEADLINE_S
        while api.get("/v1/models").status_code == 200:
            assert time.monotonic() < deadline
            time.sleep(0.1)
    listed = json.loads(mathrag("key", "list", "--json", *directory).stdout)
    assert [key["valid"] for key in listed if key["name"] == "passing"] == [False]


def test_no_secret_is_told_anywhere(closed: RunningStack, job: str) -> None:
    secrets = [*json.loads((closed.data_dir / "passwords.json").read_text()).values(), SERVICE_KEY, key_of(closed)]
    closed.kill("judge")
    closed.api.post("/v1/jobs", json={"name": f"Bearer {key_of(closed)}", "dataset": "world", "pipeline": "none"})
    httpx2.get(f"{closed.url}/v1/jobs", headers={"authorization": f"Bearer {SERVICE_KEY}"}, trust_env=False)
    closed.wait(closed.submit("after-a-crash", pipeline="hybrid"), ended)
    told = {page: closed.api.get(page.format(job=job)).text for page in PAGES}
    told |= {str(file): file.read_text(errors="replace") for file in (closed.data_dir / "logs").iterdir()}
    told["state"] = (closed.data_dir / "state.json").read_text()
    told["ps"] = "\n".join(" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"]))
    assert "services.guard" in told["ps"]
    assert [(where, secret[:4]) for where, words in told.items() for secret in secrets if secret in words] == []


class Trap(socketserver.ThreadingTCPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), socketserver.BaseRequestHandler)
        self.visits = 0

    def process_request(self, request: object, client_address: object) -> None:
        self.visits += 1
        self.shutdown_request(request)  # type: ignore[arg-type]


@pytest.fixture
def trap() -> Iterator[Trap]:
    with Trap() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_no_address_that_a_user_writes_is_ever_opened(closed: RunningStack, trap: Trap) -> None:
    url = f"http://127.0.0.1:{trap.server_address[1]}/x"
    document = {
        "text": f"See {url} and file:///etc/passwd. So \\boxed{{1}}.",
        "problem": url,
        "subject": url,
        "level": url,
    }
    documents = [
        {**document, "id": f"{url}/{number}", "meta": {"url": url}, "title": f"{url} {number}"} for number in range(5)
    ]
    items = [
        {"question": f"{url} {number}", "answer": url, "id": f"{url}/{number}", "subject": url} for number in range(2)
    ]
    for kind, lines in (("corpora", documents), ("datasets", items)):
        body = "\n".join(map(json.dumps, lines))
        assert closed.api.post(f"/v1/{kind}", params={"name": "urls"}, content=body).status_code == 201
    anchors = {"positive": url, "negative": url}
    fields = {"corpus": "urls", "dataset": "urls", "metadata": {"url": url}}
    found = closed.submit("urls", params={"anchors": anchors, "gate": {"on_unusable": "rules"}}, **fields)
    assert closed.wait(found, ended)["state"] == "completed"
    refused = [
        {"name": url}, {"dataset": url}, {"corpus": url}, {"pipeline": url}, {"models": {"judge": url}},
        {"models": {"judge": "world-judge", "url": url}}, {"params": {"anchors": {"url": url}}}, {"url": url},
        {"params": {"gate": {"on_unusable": url}}}, {"models": {"judge": {"driver": "remote", "url": url}}},
        {"callback_url": url}, {"params": {"url": url}},
    ]  # fmt: skip
    for change in refused:
        body = {"name": "a", "dataset": "urls", "corpus": "urls", "pipeline": "mathrag-gate", **change}
        assert closed.api.post("/v1/jobs", json=body).status_code in (404, 422), change
    closed.api.post("/v1/search", json={"corpus": "urls", "question": url})
    closed.api.post("/v1/chat", json={"corpus": "urls", "question": url})
    closed.api.get(f"/v1/jobs/{url}")
    assert trap.visits == 0
    with pytest.raises(httpx2.TransportError):
        httpx2.get(url, trust_env=False)
    assert trap.visits == 1, "the trap itself works"
