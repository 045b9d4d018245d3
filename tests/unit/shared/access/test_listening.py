"""Where a process may listen, and when the API asks for keys."""

import logging
import os
import sys
from importlib import import_module
from typing import Any

import pytest

from shared.access import filters
from shared.settings import Access, Settings

pytestmark = pytest.mark.anyio

EVERYWHERE = "0.0.0.0"  # noqa: S104 - what is refused
LOOPBACK = ("127.0.0.1", "127.8.9.1", "::1", "localhost")
OPEN_TO_OTHERS = (EVERYWHERE, "::", "192.168.1.5", "", "example.org", "localhost.example.org", "::ffff:10.0.0.1")


@pytest.mark.parametrize("host", LOOPBACK)
def test_on_loopback_nothing_is_needed(host: str) -> None:
    assert filters.is_loopback(host)
    assert not filters.keys_required(Settings(host=host))
    assert filters.explain_refusal(Settings(), host) is None


@pytest.mark.parametrize("host", OPEN_TO_OTHERS)
def test_elsewhere_the_api_asks_for_keys_and_services_need_theirs(host: str) -> None:
    assert not filters.is_loopback(host)
    assert filters.keys_required(Settings(host=host))
    refusal = filters.explain_refusal(Settings(), host)
    assert refusal is not None
    assert "MATHRAG_SERVICE_KEY" in refusal
    assert filters.explain_refusal(Settings(service_key="s"), host) is None


@pytest.mark.parametrize(("keys", "host", "required"), [("off", EVERYWHERE, False), ("required", "127.0.0.1", True)])
def test_the_operator_has_the_last_word(keys: Any, host: str, required: bool) -> None:
    assert filters.keys_required(Settings(host=host, access=Access(keys=keys))) is required


def test_an_open_api_beyond_loopback_is_a_warning_at_start(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    filters.log_exposure(Settings(host=EVERYWHERE, access=Access(keys="off")))
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "WITHOUT keys" in caplog.text


def test_an_api_with_keys_says_how_to_make_one(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    filters.log_exposure(Settings(host=EVERYWHERE))
    assert [record.levelname for record in caplog.records] == ["INFO"]
    assert "mathrag key create" in caplog.text


def test_on_loopback_there_is_nothing_to_say(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    filters.log_exposure(Settings())
    assert not caplog.records


@pytest.mark.parametrize("service", ["guard", "retriever"])
def test_a_service_without_key_does_not_start_beyond_loopback(
    service: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = import_module(f"services.{service}.__main__")
    opened: list[object] = []
    for opens in ("create_app", "serve"):
        monkeypatch.setattr(program, opens, lambda *_, **__: opened.append(None))
    for name in [name for name in os.environ if name.startswith("MATHRAG_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(sys, "argv", [service, "--host", EVERYWHERE, "--port", "1"])
    with pytest.raises(SystemExit) as ended:
        program.main()
    assert (ended.value.code, opened) == (2, [])
    assert "refused to listen on '0.0.0.0' without a service key" in capsys.readouterr().err
