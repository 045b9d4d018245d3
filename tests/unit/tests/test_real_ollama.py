"""Which server `make real` takes for Ollama, and that it leaves it as it was; the program is the double's."""

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.doubles.programs import program
from tests.real import ollama
from tests.real.lacking import Lacking
from tests.real.ollama import FILES, JUDGE
from tests.real.ollama import Ollama as RealOllama

pytestmark = pytest.mark.anyio


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RealOllama]:
    Path(program(tmp_path, "ollama_program")).rename(tmp_path / "ollama")
    monkeypatch.delenv("OLLAMA_HOST", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    server = ollama.found(tmp_path / "data")
    yield server
    server.stop()


def tags(server: RealOllama) -> set[str]:
    listed = httpx2.get(f"{server.url}/api/tags", trust_env=False).json()["models"]
    return {each["name"] for each in listed}


def test_an_ollama_that_is_installed_is_started_and_has_our_models_until_they_are_removed(started: RealOllama) -> None:
    for tag in FILES:
        started.create(tag)
    started.stop()
    started.start()
    assert tags(started) == set(FILES)
    started.remove()
    assert tags(started) == set()


@pytest.mark.parametrize("scheme", ["", "http://"])
def test_a_server_that_is_named_is_used_and_goes_on(
    scheme: str, started: RealOllama, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OLLAMA_HOST", started.url.replace("http://", scheme))
    named = ollama.found(tmp_path)
    assert (named.url, named.program) == (started.url, None)
    named.stop()
    assert "which OLLAMA_HOST names" in named.version()


def test_a_server_that_holds_a_model_of_somebody_else_is_left_alone(
    started: RealOllama, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started.create(JUDGE)
    monkeypatch.setattr(ollama, "FILES", {})
    httpx2.post(f"{started.url}/api/chat", json={"model": JUDGE, "messages": []}, trust_env=False)
    monkeypatch.setenv("OLLAMA_HOST", started.url)
    with pytest.raises(Lacking, match=f"has loaded {JUDGE}"):
        ollama.found(tmp_path)


@pytest.mark.parametrize(
    ("named", "said"), [("", "OLLAMA_HOST names none"), ("127.0.0.1:1", "OLLAMA_HOST does not answer: 127.0.0.1:1")]
)
def test_where_there_is_none_it_is_said(named: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("OLLAMA_HOST", named)
    with pytest.raises(Lacking, match=f"no ollama is installed, and {said}"):
        ollama.found(tmp_path)
