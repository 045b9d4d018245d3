"""Which servers tests run on: a machine without a usable engine is noticed at once, and the reason is said."""

from pathlib import Path

import pytest

from tests import containers
from tests.servers import decide

pytestmark = pytest.mark.anyio

NO_DAEMON = 'echo "Cannot connect to the Docker daemon" >&2; exit 1'
NO_IMAGE = 'if [ "$1" = image ]; then echo "No such image: postgres:17" >&2; exit 1; fi'


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path / "docker"


def script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_an_engine_that_has_the_images_lacks_nothing(docker: Path) -> None:
    script(docker, "exit 0")
    assert containers.lacking("postgres:17", compose=True) == ""


def test_a_client_without_an_engine_is_said_in_its_own_words(docker: Path) -> None:
    script(docker, NO_DAEMON)
    assert containers.lacking("postgres:17") == "Cannot connect to the Docker daemon"


def test_images_are_not_fetched(docker: Path) -> None:
    script(docker, NO_IMAGE)
    assert containers.lacking("postgres:17") == "No such image: postgres:17"
    assert containers.lacking() == ""


def test_an_engine_that_says_nothing_is_given_up(docker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containers, "PATIENCE_S", 0.05)
    script(docker, "exec sleep 60")
    assert containers.lacking() == "`docker version` did not answer within 0.05 s"


def test_without_a_client_there_is_no_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert containers.lacking() == "there is no command `docker`"


def test_containers_are_chosen_where_nothing_is_lacking() -> None:
    assert decide("", "").contained
    assert decide("", "no engine") == (False, "no engine")


def test_the_user_has_the_last_word() -> None:
    assert not decide("embedded", "").contained
    assert decide("containers", "").contained
    with pytest.raises(pytest.UsageError, match="no engine"):
        decide("containers", "no engine")
    with pytest.raises(pytest.UsageError, match="it may be"):
        decide("docker", "")
