"""Write the rows of one release, for tests that later releases read them.

On the release's own commit: `.venv/bin/python -m tests.integration.releases.make 0.1.0` writes `0.1.0.sql.gz` beside
this file: the rows alone, without the schema, headed by the revision that they belong to. Five jobs: one completed,
one with failures, one cancelled, one stopped in the middle of its generator stage, one in its calibration.
"""

import asyncio
import gzip
import re
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy.engine import make_url

from mathrag_gate.stack.postgres import Postgres, find_binary, migrate
from shared.calls import Lane, Request
from shared.replies import Failure, FailureKind, Generated, Reply
from shared.runtime.lifecycle import cancel, finish_due_jobs
from shared.runtime.queue import RETRIES, AnsweredCall, Claims, Receipt
from shared.storage.database import Database
from tests import servers
from tests.integration.scene import (
    ScriptedExecutor,
    by_rule,
    furnish,
    let_pauses_pass,
    model,
    scalar,
    submit_job,
)
from tests.integration.test_audit import DEVICE, Device, staged

PLACE = Path(__file__).parent
CLIENT_COMMAND = re.compile(r"^\\(un)?restrict .*\n", re.MULTILINE)
"""Lines of a dump that are not SQL."""


async def fill(database: Database) -> None:
    """The five jobs, one after the other."""
    await furnish(database, items=4)
    await submit_job(database, name="completed", params={"gate": {"min_pairs": 5}})
    await staged(database)
    await submit_job(database, "closed-book", name="with-failures", reuse="none")
    for _ in range(RETRIES):
        await staged(database, ScriptedExecutor(failing))
        await let_pauses_pass(database)
    await staged(database)
    job = await submit_job(database, "hybrid", name="cancelled", reuse="none")
    await Device(database).drain(Lane.JUDGE, ScriptedExecutor())
    await cancel(database, job)
    await finish_due_jobs(database)
    await submit_job(database, "crag", name="stopped", reuse="none", repeats=2)
    await stop_in_the_generator_stage(database)
    await submit_job(database, name="preparing", reuse="none")


def failing(request: Request) -> Reply:
    """The third question breaks the backend; the fourth one's answer is refused."""
    if request.role != "generate":
        return by_rule(request)
    match request.values["question"]:
        case "What is 2 plus 2?":
            return Failure(kind=FailureKind.BACKEND_ERROR, detail="down")
        case "What is 3 plus 3?":
            return Failure(kind=FailureKind.REFUSED, detail="the model gave an empty text")
        case _:
            return by_rule(request)


async def stop_in_the_generator_stage(database: Database) -> None:
    """Two answers are committed and made their samples ready, two calls are claimed, the others pending."""
    device = Device(database)
    await device.flip("a-judge", "drained")
    await device.drain(Lane.JUDGE, ScriptedExecutor())
    await device.flip("a-generator", "drained")
    claims = Claims(database, "test-generate", 60.0)
    taken = await claims.claim(Lane.GENERATE, await model(database), 4)
    assert taken is not None
    assert device.lease is not None
    now = datetime.now(UTC)
    receipt = Receipt(started_at=now, ended_at=now, epoch=device.lease.epoch, device=DEVICE)
    reply = Generated(text="so \\boxed{4}")
    answers = [AnsweredCall(call_id=call.id, reply=reply, receipt=receipt) for call in taken.calls[:2]]
    assert (await claims.answer(taken.token, answers)).ready == len(answers)


def rows_of(server: Postgres) -> str:
    """All rows as SQL, headed by the revision of their schema."""
    url = make_url(server.owner_url()).set(drivername="postgresql").render_as_string(hide_password=False)
    command = [find_binary("pg_dump"), "--data-only", "--inserts", "--rows-per-insert=500", "--no-owner"]
    command += ["--exclude-table=alembic_version", f"--dbname={url}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return CLIENT_COMMAND.sub("", done.stdout)


async def made(server: Postgres) -> str:
    """The text of a dump."""
    await migrate(server.owner_url())
    database = Database(server.url(), pinned=True)
    await fill(database)
    await database.close()
    owner = Database(server.owner_url(), pinned=False)
    revision = await scalar(owner, "SELECT version_num FROM alembic_version")
    await owner.close()
    return f"-- revision {revision}\n{rows_of(server)}"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, servers.postgres(Path(folder) / "postgres") as server:
        text = asyncio.run(made(server))
    # Without a time stamp in its header.
    (PLACE / f"{sys.argv[1]}.sql.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
