"""Migrate the database to the newest schema as its owner, in a separate process."""

import asyncio
import os
import sys
from pathlib import Path

from shared.errors import Unavailable
from shared.settings import REPOSITORY

INI = REPOSITORY / "migrations" / "alembic.ini"


def list_schemas() -> list[str]:
    """Return the schemas that this release can read or migrate, newest first."""
    from alembic.config import Config  # not imported at every start of a stack
    from alembic.script import ScriptDirectory

    return [script.revision for script in ScriptDirectory.from_config(Config(str(INI))).walk_revisions()]


async def migrate(owner_url: str, *, log: Path | None = None) -> None:
    """Run the migrations, and write their output to `log`; only this process gets the owner's URL.

    Raises:
        Unavailable: a migration failed.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "alembic", "-c", str(INI), "upgrade", "head",
        env=os.environ | {"MATHRAG_OWNER_URL": owner_url},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    output, _ = await process.communicate()
    if log is not None:
        log.write_bytes(output)  # noqa: ASYNC240 - a few lines, once
    if process.returncode != 0:
        last = output.decode(errors="replace").strip().splitlines()[-1:]
        raise Unavailable(f"the migration failed: {' '.join(last)}")
