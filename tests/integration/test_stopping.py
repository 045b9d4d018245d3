"""Workers that are told to stop."""

import os
from pathlib import Path

from redis import Redis

from tests.faults.processes import judge_worker, until
from tests.faults.proxy import Proxy


def test_a_worker_that_is_told_to_stop_ends_although_redis_is_away(
    cable: Proxy, redis_url: str, tmp_path: Path
) -> None:
    through = redis_url.replace(redis_url.rpartition(":")[2].partition("/")[0], str(cable.port))
    environment = {**os.environ, "MATHRAG_REDIS_URL": through, "MATHRAG_DATA_DIR": str(tmp_path)}
    with Redis.from_url(redis_url) as redis, judge_worker(environment, tmp_path):
        until("it runs", lambda: list(redis.scan_iter(match="mathrag:worker:*")))
        cable.silence()
        log = tmp_path / "judge.log"
        until("it notices", lambda: "heartbeat not written" in log.read_text())
