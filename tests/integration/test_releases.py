"""Rows that earlier releases wrote: migrated to the present schema, they are listed, continued and audited."""

import asyncio
import gzip
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest
from sqlalchemy.engine import make_url

from mathrag_gate.stack.postgres import Postgres, migrate
from shared.calls import Lane
from shared.lease import residencies
from shared.lease.lease import DeviceLease, Phase
from shared.runtime.queue import sweep
from shared.settings import REPOSITORY
from shared.storage.database import Database
from tests import servers
from tests.faults.recording import Seen
from tests.integration.api import Api, serving
from tests.integration.releases.make import PLACE
from tests.integration.scene import ScriptedExecutor, drain, let_claims_expire, run_sql
from tests.integration.test_audit import DEVICE, Device, staged

pytestmark = pytest.mark.anyio

RELEASES = sorted(PLACE.glob("*.sql.gz"))
TRIGGERED = "SELECT DISTINCT event_object_table FROM information_schema.triggers WHERE trigger_schema = 'public'"


@pytest.fixture(params=RELEASES, ids=lambda path: path.name.removesuffix(".sql.gz"))
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Postgres]:
    rows = gzip.decompress(request.param.read_bytes()).decode()
    with servers.postgres(tmp_path / "postgres") as server:
        upgrade(server.owner_url(), rows.partition("\n")[0].removeprefix("-- revision "))
        asyncio.run(load(server.owner_url(), rows))
        asyncio.run(migrate(server.owner_url()))
        yield server


@pytest.fixture
async def written(server: Postgres, anyio_backend: str) -> AsyncIterator[Database]:
    database = Database(server.url(), pinned=True)
    yield database
    await database.close()


def upgrade(owner_url: str, revision: str) -> None:
    ini = REPOSITORY / "migrations" / "alembic.ini"
    command = [sys.executable, "-m", "alembic", "-c", str(ini), "upgrade", revision]
    subprocess.run(command, env={**os.environ, "MATHRAG_OWNER_URL": owner_url}, check=True)


async def load(owner_url: str, rows: str) -> None:
    url = make_url(owner_url).set(drivername="postgresql").render_as_string(hide_password=False)
    connection = await asyncpg.connect(url)
    tables = [row[0] for row in await connection.fetch(TRIGGERED)]
    for table in tables:
        await connection.execute(f"ALTER TABLE public.{table} DISABLE TRIGGER USER")
    await connection.execute(rows)
    for table in tables:
        await connection.execute(f"ALTER TABLE public.{table} ENABLE TRIGGER USER")
    await connection.close()


async def continued(database: Database) -> None:
    await let_claims_expire(database)
    await sweep(database, "sweeper")
    device = Device(database)
    async with database.transaction() as connection:
        newest = await residencies.find_newest(connection, DEVICE)
    assert newest is not None
    device.lease = DeviceLease(epoch=newest.epoch, phase=Phase.OPEN, models=newest.models)
    await device.close("guard_restart")
    for model, lane in (("a-generator", Lane.GENERATE), ("a-judge", Lane.JUDGE), ("a-generator", Lane.GENERATE)):
        await device.drain(Lane.JUDGE, ScriptedExecutor())
        await device.flip(model, "drained" if device.lease else "guard_restart")
        await device.drain(lane, ScriptedExecutor())
    await device.drain(Lane.JUDGE, ScriptedExecutor())
    await device.close("guard_stopped")


async def test_a_job_with_a_parameter_that_was_removed_is_listed_continued_reported_exported_and_audited(
    database: Database, api: Api
) -> None:
    await api.job("mathrag-gate", params={"quality": "verifier"})
    await run_sql(
        database,
        "UPDATE jobs SET params = convert_to(left(convert_from(params, 'UTF8'), -1) || :verify, 'UTF8')",
        verify=',"verify":{"modulus":97}}',
    )
    await staged(database)
    assert await listed(api) == {"a-job": ("completed", 5, 0)}
    (job,) = (await api.get("/v1/jobs"))["data"]
    assert (job["params"]["quality"], "verify" in job["params"]) == ("verifier", False)
    assert sum((await api.get("/v1/jobs/a-job/report"))["endings"].values()) == 5
    head = (await api.http.get("/v1/jobs/a-job/provenance")).text.splitlines()[0]
    assert json.loads(json.loads(head)["record"])["params"]["verify"] == {"modulus": 97}
    (own_change,) = (await api.get("/v1/jobs/a-job/audit"))["violations"]
    assert (own_change["invariant"], own_change["message"]) == ("I21", "changed a final value")
    requeued = await api.http.post("/v1/jobs/a-job/requeue")
    assert (requeued.status_code, "verify" in requeued.json()["params"]) == (202, False)


async def test_a_call_with_a_field_that_was_removed_is_shown_reported_exported_and_audited(
    database: Database, api: Api
) -> None:
    await api.job("mathrag-gate", params={"quality": "verifier"})
    await drain(database, ScriptedExecutor())
    await run_sql(
        database,
        "UPDATE calls SET request = convert_to(left(convert_from(request, 'UTF8'), -1) || :modulus, 'UTF8')"
        " WHERE role = 'verify'",
        modulus=',"modulus":97}',
    )
    for part in ("samples/0", "report", "results", "provenance", "audit"):
        reply = await api.http.get(f"/v1/jobs/a-job/{part}")
        assert reply.status_code == 200, reply.text


async def test_a_new_job_with_a_parameter_that_was_removed_is_refused(api: Api) -> None:
    body = {"name": "n", "dataset": "items", "pipeline": "closed-book", "params": {"verify": {"modulus": 97}}}
    reply = await api.http.post("/v1/jobs", json=body)
    assert reply.status_code == 422
    assert "`params.verify`: there is no such field" in reply.json()["detail"]


async def test_a_configuration_with_a_parameter_that_was_removed_refuses_no_job(database: Database, api: Api) -> None:
    await run_sql(
        database,
        "INSERT INTO configurations (version, document, changed_by) VALUES (1, CAST(:document AS json), 'operator')",
        document='{"params":{"candidates":7,"verify":{"modulus":97}}}',
    )
    assert (await api.job("dense"))["params"]["candidates"] == 7
    assert (await api.get("/v1/configuration"))["params"] == {"candidates": 7}


async def listed(api: Api) -> dict[str, tuple[str, int, int]]:
    found = (await api.get("/v1/jobs"))["data"]
    assert [job["name"] for job in found if "unreadable" in job] == []
    counts = {job["name"]: job["request_counts"] for job in found}
    return {job["name"]: (job["state"], *(counts[job["name"]][of] for of in ("completed", "failed"))) for job in found}


@pytest.mark.fault("V2")
async def test_jobs_of_an_earlier_release_are_listed_continued_and_audited(
    written: Database, redis_url: str, seen: Seen
) -> None:
    seen.describe("rows of the release 0.1.0, from a dump in the repository, are migrated to the present schema")
    before = {
        "completed": ("completed", 4, 0), "with-failures": ("completed", 2, 2), "cancelled": ("cancelled", 0, 0),
        "stopped": ("running", 0, 0), "preparing": ("preparing", 0, 0),
    }  # fmt: skip
    after = before | {"stopped": ("completed", 8, 0), "preparing": ("completed", 4, 0)}
    async with serving(written, redis_url) as api:
        assert await listed(api) == before
        await continued(written)
        assert await listed(api) == after
        for name in after:
            audit = await api.get(f"/v1/jobs/{name}/audit")
            assert audit["violations"] == []
            assert audit["source_changed"].startswith("pipeline changed: the job ran version ")
    seen.note("five jobs were listed; the two unfinished ones completed; all five audits were clean")
