"""A worker's heartbeat is its own host's: containers share process ids, and a health check asks for its container."""

import http.server
import os
import socket
import threading
from collections.abc import Iterator

import pytest
from redis import Redis

from mathrag.stack.process import make_heartbeat_answer_test
from shared import probe
from shared.calls import Lane
from shared.runtime import heartbeats


class OnlyTheRoot(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/" else 404)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def redis(redis_url: str) -> Iterator[Redis]:
    with Redis.from_url(redis_url) as client:
        yield client


def test_a_worker_without_a_heartbeat_is_not_well(redis_url: str) -> None:
    assert not heartbeats.is_alive(Lane.JUDGE, redis_url)
    assert not heartbeats.is_alive(Lane.JUDGE, "redis://127.0.0.1:1/0")


def test_a_worker_with_a_heartbeat_is_well(redis: Redis, redis_url: str) -> None:
    redis.set(heartbeats.key(Lane.JUDGE, os.getpid()), "alive")
    assert heartbeats.is_alive(Lane.JUDGE, redis_url)
    assert not heartbeats.is_alive(Lane.GENERATE, redis_url)


def test_workers_of_other_hosts_do_not_count(redis: Redis, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    redis.set(heartbeats.key(Lane.JUDGE, 7), "alive")
    monkeypatch.setattr(socket, "gethostname", lambda: "elsewhere")
    assert not heartbeats.is_alive(Lane.JUDGE, redis_url)
    redis.set(heartbeats.key(Lane.JUDGE, 7), "alive")
    assert len(redis.keys("mathrag:worker:judge:*")) == 2


def test_a_service_is_well_while_it_answers() -> None:
    with http.server.HTTPServer(("127.0.0.1", 0), OnlyTheRoot) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        assert probe.answers(f"{url}/")
        assert not probe.answers(f"{url}/nothing-here")
        server.shutdown()
    assert not probe.answers(f"{url}/")


@pytest.mark.anyio
async def test_a_worker_whose_heartbeat_has_lapsed_does_not_answer(redis: Redis, redis_url: str) -> None:
    answers = make_heartbeat_answer_test(redis_url, Lane.JUDGE)
    redis.set(heartbeats.key(Lane.JUDGE, os.getpid()), "alive")
    assert await answers(os.getpid())
    redis.delete(heartbeats.key(Lane.JUDGE, os.getpid()))
    assert not await answers(os.getpid())
    assert not redis.keys("mathrag:worker:*")


@pytest.mark.anyio
async def test_a_worker_is_not_blamed_for_a_redis_that_takes_no_heartbeat(redis: Redis, redis_url: str) -> None:
    redis.config_set("maxmemory", 1)
    try:
        assert await make_heartbeat_answer_test(redis_url, Lane.JUDGE)(os.getpid())
    finally:
        redis.config_set("maxmemory", 0)
