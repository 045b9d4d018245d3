"""The connection to the broker is tried again at a steady pace, however long the broker was away."""

import pytest
from kombu.exceptions import OperationalError
from kombu.utils import functional

from shared.queue import RECONNECT_S, celery_app

pytestmark = pytest.mark.anyio


def test_the_pause_between_two_tries_to_connect_does_not_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(functional, "sleep", lambda _seconds: None)
    pauses: list[float] = []
    connection = celery_app("redis://127.0.0.1:1", 60.0).connection_for_read()
    with pytest.raises(OperationalError):
        connection.ensure_connection(lambda _error, pause: pauses.append(pause), max_retries=20)
    assert len(pauses) == 20
    assert max(pauses) == RECONNECT_S
