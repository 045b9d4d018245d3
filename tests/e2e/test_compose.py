"""The compose project from nothing: built, healthy, a job answered, scaled, broken and mended, gone without a trace."""

import itertools
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import containers
from tests.composed import PROFILES, Composed, composed, configured
from tests.running import JUDGED, Document, ended

OURS = {"orchestrator", "retriever", "guard", "judge", "generator", "migrate"}
NOT_HERE = containers.lacking(compose=True)

pytestmark = pytest.mark.skipif(bool(NOT_HERE), reason=f"no container engine: {NOT_HERE}")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Composed]:
    with composed(f"mathrag-test-{os.getpid()}") as running:
        running.furnish(tmp_path_factory.mktemp("world"), items=40)
        yield running


def published(configuration: Document) -> dict[str, set[str]]:
    ports = {name: service.get("ports", []) for name, service in configuration["services"].items()}
    return {name: {port.get("host_ip", "") for port in each} for name, each in ports.items() if each}


@pytest.mark.parametrize("profiles", [c for n in range(5) for c in itertools.combinations(PROFILES, n)], ids="+".join)
def test_every_combination_of_profiles_is_valid(profiles: tuple[str, ...]) -> None:
    configuration = configured(*profiles)
    assert all(addresses == {"127.0.0.1"} for addresses in published(configuration).values())
    assert not [name for name, service in configuration["services"].items() if "container_name" in service]


def test_only_the_api_is_published() -> None:
    assert published(configured()) == {"orchestrator": {"127.0.0.1"}}
    opened = configured(MATHRAG_PUBLISH="192.0.2.1")
    assert published(opened) == {"orchestrator": {"192.0.2.1"}}
    assert opened["services"]["orchestrator"]["environment"]["MATHRAG_HOST"] == "192.0.2.1"


def test_what_is_started_ends_well_or_is_healthy(project: Composed) -> None:
    for container in project.containers():
        once = container["Service"] in ("secrets", "roles", "migrate")
        assert (container["ExitCode"], container["Health"]) == (0, "" if once else "healthy"), container["Service"]
    assert project.get("/readyz")["ready"]


def test_a_job_is_answered_with_two_loads_and_audited_clean(project: Composed) -> None:
    job = project.submit("in-containers", params=JUDGED)
    assert project.wait(job, ended)["state"] == "completed"
    report = project.get(f"/v1/jobs/{job}/report")
    assert (report["model_loads"], report["request_counts"]["failed"]) == (2, 0)
    assert project.get(f"/v1/jobs/{job}/audit")["clean"]


def test_a_job_outlives_a_killed_guard_among_three_judges(project: Composed) -> None:
    params = {**JUDGED, "generate": {"temperature": 0.7}}
    job = project.submit("scaled-and-broken", reuse="none", repeats=3, params=params)
    before = project.restarts()
    project.kill("guard")
    project.run("up", "--wait", "--no-recreate", "--scale", "judge=3")
    alive = {check["name"]: check["detail"] for check in project.get("/readyz")["checks"]}
    assert alive["judge worker"] == "3 alive"
    assert project.wait(job, ended)["state"] == "completed"
    assert project.get(f"/v1/jobs/{job}/audit")["clean"]
    assert project.restarts()["guard-1"] == before["guard-1"] + 1


def test_services_run_as_nobody_in_particular_and_change_nothing(project: Composed) -> None:
    for service in sorted(OURS - {"migrate"}):
        assert project.inside(service, "id -u").strip() == "10001"
        assert project.inside(service, "touch /app/new 2>/dev/null || echo refused").strip() == "refused"
        assert set(project.inside(service, "ls services").split()) == {"__init__.py", service}


def test_each_service_sees_its_own_secrets_only(project: Composed) -> None:
    expected = {"MATHRAG_DATABASE_URL", "MATHRAG_REDIS_URL", "MATHRAG_RETRIEVAL", "MATHRAG_SERVICE_KEY"}
    for service in sorted(OURS - {"migrate"}):
        assert set(project.inside(service, "ls /run/secrets").split()) == expected


def test_no_secret_shows(project: Composed) -> None:
    secrets = set(re.findall(r"[0-9a-f]{48}", project.inside("postgres", "cat /run/secrets/*")))
    secrets |= set(re.findall(r"[0-9a-f]{48}", project.inside("guard", "cat /run/secrets/*")))
    assert len(secrets) == 6
    shown = json.dumps(project.inspect()) + project.run("logs", "--no-color")
    assert not [secret for secret in secrets if secret in shown]


def test_the_stores_can_be_looked_into(project: Composed) -> None:
    user = project.run("run", "--rm", "--no-TTY", "psql", "--tuples-only", "--command", "SELECT current_user")
    assert user.strip() == "mathrag_app"
    for setting, value in (("appendonly", "yes"), ("maxmemory-policy", "noeviction")):
        shown = project.run("run", "--rm", "--no-TTY", "redis-cli", "config", "get", setting)
        assert shown.split() == [setting, value]


def test_images_say_what_they_are(project: Composed) -> None:
    for container in project.inspect():
        labels = container["Config"]["Labels"]
        if labels["com.docker.compose.service"] in OURS:
            assert labels["org.opencontainers.image.title"] == "MathRAG-Gate"
            assert labels["org.opencontainers.image.version"]


def test_down_and_up_again_goes_on(project: Composed, tmp_path: Path) -> None:
    job = project.submit("kept", pipeline="hybrid")
    project.wait(job, ended)
    results = project.api.get(f"/v1/jobs/{job}/results").text
    project.run("down")
    project.run("up", "--wait")
    again = Composed(project.project)
    assert again.api.get(f"/v1/jobs/{job}/results").text == results
    again.api.close()
