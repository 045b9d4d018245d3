"""`mathrag doctor` where nothing runs, where the settings are wrong, and against a server elsewhere."""

from pathlib import Path

import httpx2
import msgspec
import pytest

from mathrag.check import Check
from mathrag.cli.doctor import print_checks
from mathrag.cli.output import Exit
from mathrag.client import address
from mathrag_gate.stack import control, postgres, versions
from mathrag_gate.stack.backup import add_running_addresses, list_variables
from shared.settings import Device, Settings, load
from tests.unit.commands import Server, mathrag, refuses, says
from tests.unit.mathrag.cli.programs import stay_here


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "empty.yaml").touch()
    monkeypatch.setenv("MATHRAG_CONFIG", str(tmp_path / "empty.yaml"))
    monkeypatch.setenv("MATHRAG_DATA_DIR", str(tmp_path))
    stay_here(monkeypatch)


def _refused(request: httpx2.Request) -> httpx2.Response:
    raise httpx2.ConnectError("refused", request=request)


def test_where_nothing_runs_it_says_so_and_looks_at_what_it_can(server: Server) -> None:
    requests = server(_refused)
    ended = mathrag("doctor", "--json")
    found = {check["name"]: check for check in msgspec.json.decode(ended.stdout)["checks"]}
    assert ended.exit_code == Exit.FINDING
    assert (found["stack"]["ok"], found["stack"]["fix"]) == (False, "mathrag up --detach")
    assert not found["api"]["ok"]
    assert requests == []
    assert all(found[name]["ok"] for name in ("configuration", "model world-judge", "budget", "driver", "disk"))
    assert "postgres" not in found


def test_an_outdated_embedded_server_fails_where_it_is_used(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server(_refused)
    installed = {"PostgreSQL": "18.6", "Valkey": "9.1.1"}
    monkeypatch.setattr(versions, "read_versions", lambda servers: {name: installed[name] for name in servers})

    def check() -> list[tuple[bool, str]]:
        checks = msgspec.json.decode(mathrag("doctor", "--json").stdout)["checks"]
        return [(each["ok"], each["detail"]) for each in checks if each["name"] == "embedded servers"]

    assert check() == [(False, "Valkey 9.1.1 lacks the fix for GHSA-fq2f-crmw-q97r, which 9.1.2 has")]
    monkeypatch.setenv("MATHRAG_REDIS_URL", "redis://127.0.0.1:1/0")
    assert check() == [(True, "PostgreSQL 18.6")]


def test_an_embedded_server_that_does_not_run_here_is_one_failed_check(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server(_refused)
    monkeypatch.setattr(versions, "BINARIES", {name: lambda: "/no/such/server" for name in versions.BINARIES})
    found = {check["name"]: check for check in msgspec.json.decode(mathrag("doctor", "--json").stdout)["checks"]}
    assert not found["embedded servers"]["ok"]
    assert "`/no/such/server` cannot be started" in found["embedded servers"]["detail"]
    assert found["model world-judge"]["ok"]


def test_a_failing_line_ends_with_what_mends_it(capsys: pytest.CaptureFixture[str]) -> None:
    print_checks(
        [Check(name="redis", ok=True), Check(name="disk", ok=False, detail="full", fix="mathrag purge --help")]
    )
    assert capsys.readouterr().out.splitlines() == [
        "ok    redis", "FAIL  disk   full; fix: mathrag purge --help", "1 of 2 checks failed",
    ]  # fmt: skip


def test_settings_that_are_wrong_are_all_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MATHRAG_PORT", "many")
    ended = mathrag("doctor", "--json")
    checks = msgspec.json.decode(ended.stdout)["checks"]
    assert (ended.exit_code, len(checks)) == (Exit.FINDING, 1)
    assert "MATHRAG_PORT" in checks[0]["detail"]


def test_a_misspelt_variable_is_a_finding(monkeypatch: pytest.MonkeyPatch, server: Server) -> None:
    server(_refused)
    monkeypatch.setenv("MATHRAG_PROT", "1")
    shown = mathrag("doctor").stdout
    assert "FAIL  configuration" in shown
    assert "did you mean MATHRAG_PORT?" in shown
    assert "disk" in shown


@pytest.mark.parametrize(("ok", "status", "code"), [(True, 200, Exit.DONE), (False, 503, Exit.FINDING)])
def test_a_server_elsewhere_is_asked_what_it_says_of_itself(
    monkeypatch: pytest.MonkeyPatch, server: Server, ok: bool, status: int, code: Exit
) -> None:
    monkeypatch.setenv("MATHRAG_URL", "https://rag.example.org")
    check = {"name": "redis", "ok": ok, "detail": "", "fix": "" if ok else "start it"}

    def answers(request: httpx2.Request) -> httpx2.Response:
        if request.url.path == "/v1/checks":
            return refuses(403, "forbidden", "no scope")(request)
        return says({"ready": ok, "checks": [check]}, status)(request)

    requests = server(answers)
    ended = mathrag("doctor", "--json")
    assert ended.exit_code == code
    assert [found["name"] for found in msgspec.json.decode(ended.stdout)["checks"]] == ["configuration", "redis"]
    assert str(requests[-1].url) == "https://rag.example.org/readyz"


def test_a_server_elsewhere_that_refuses_us_is_no_finding_but_a_refusal(
    monkeypatch: pytest.MonkeyPatch, server: Server
) -> None:
    monkeypatch.setenv("MATHRAG_URL", "https://rag.example.org")

    def refused(_: httpx2.Request) -> httpx2.Response:
        problem = refuses(401, "unauthorized", "no key")(_)
        problem.headers["content-type"] = "application/problem+json"
        return problem

    server(refused)
    assert mathrag("doctor").exit_code == Exit.REFUSED


def test_the_addresses_are_those_of_the_stack_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(redis_url="redis://mine", devices=(Device(id="b"), Device(id="c", guard_url="http://far")))
    assert add_running_addresses(settings, tmp_path).database_url == ""
    secret = postgres.load_passwords(tmp_path)
    children = [
        address.ChildState(name=name, phase="running", pid=1, port=port, restarts=0, log="")
        for name, port in (
            ("postgres", 1),
            ("redis", 2),
            ("guard", 3),
            ("guard-2", 5),
            ("retriever", 4),
            ("judge", None),
        )
    ]
    with control.hold(tmp_path):
        address.write_state(tmp_path, address.State(pid=1, url="http://h", phase="running", children=tuple(children)))
        found = add_running_addresses(settings, tmp_path)
    assert found.database_url.endswith("@127.0.0.1:1/mathrag")
    assert (found.redis_url, found.guard_url) == ("redis://mine", "http://127.0.0.1:3")
    assert (found.retriever_url, found.service_key) == ("http://127.0.0.1:4", secret.service)
    assert [device.guard_url for device in found.devices] == ["http://127.0.0.1:5", "http://far"]
    for name, value in list_variables(found).items():
        monkeypatch.setenv(name, value)
    assert load().model_dump() == found.model_dump()
    assert load().database_url == found.database_url
