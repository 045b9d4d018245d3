"""Cookies of people who signed in."""

import pytest
from starlette.datastructures import Headers
from starlette.responses import Response

from services.orchestrator.access.identity import COOKIE, LIFETIME_S, Sessions


class Clock:
    now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


def start(sessions: Sessions) -> str:
    response = Response()
    sessions.start(response, "mrg_00000000", https=False)
    return response.headers["set-cookie"].partition(";")[0]


def find_prefix(sessions: Sessions, cookie: str) -> str | None:
    found = sessions.find(Headers({"cookie": cookie}), https=False)
    return found.prefix if found else None


def test_processes_with_the_same_service_key_accept_each_others_sessions() -> None:
    cookie = start(Sessions("secret"))
    assert find_prefix(Sessions("secret"), cookie) == "mrg_00000000"
    assert find_prefix(Sessions("another"), cookie) is None


def test_without_a_service_key_a_session_is_valid_in_its_process_only() -> None:
    here, there = Sessions(""), Sessions("")
    assert find_prefix(here, start(here)) == "mrg_00000000"
    assert find_prefix(there, start(here)) is None


def test_a_session_ends_after_its_lifetime() -> None:
    clock = Clock()
    sessions = Sessions("secret", clock)
    cookie = start(sessions)
    clock.now += LIFETIME_S - 1
    assert find_prefix(sessions, cookie) is not None
    clock.now += 1
    assert find_prefix(sessions, cookie) is None


@pytest.mark.parametrize("changed", ["mrg_11111111.1800000000", "mrg_00000000.1900000000", "mrg_00000000 1800000000."])
def test_neither_key_nor_time_of_a_session_can_be_changed(changed: str) -> None:
    sessions = Sessions("secret", Clock())
    signature = start(sessions).rpartition(".")[2]
    assert find_prefix(sessions, f"{COOKIE}={changed}.{signature}") is None


def test_a_form_token_belongs_to_one_session() -> None:
    clock = Clock()
    sessions = Sessions("secret", clock)
    first = start(sessions)
    clock.now += 1
    found = [sessions.find(Headers({"cookie": cookie}), https=False) for cookie in (first, start(sessions))]
    assert len({each.csrf for each in found if each}) == 2
