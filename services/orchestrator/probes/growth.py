"""What grows: how large it is now, and the command that makes it smaller."""

import asyncio
from collections.abc import Iterable
from pathlib import Path

from redis.exceptions import ResponseError
from sqlalchemy import text

from services.orchestrator.deps import Deps
from shared.checks.check import NotReady

MIB = 1 << 20
DATABASE = text("SELECT pg_database_size(current_database())")
LARGEST = text("""
    SELECT relname, pg_total_relation_size(oid) AS size FROM pg_class WHERE relkind = 'r'
    ORDER BY size DESC, relname LIMIT 1""")
CHATS = text("SELECT count(*) FROM jobs WHERE online AND ended_at IS NOT NULL")
INDEXES = text("""
    SELECT i.path, EXISTS (SELECT 1 FROM corpora c WHERE i.id IN (c.dense_index, c.sparse_index)) AS used
    FROM indexes i""")


async def database(deps: Deps) -> str:
    """The database, its largest table, and the chats in it."""
    async with deps.database.transaction() as connection:
        size = (await connection.execute(DATABASE)).scalar_one()
        largest = (await connection.execute(LARGEST)).one()
        chats = (await connection.execute(CHATS)).scalar_one()
    most = f"`{largest.relname}` {_mib(largest.size)}"
    return f"{_mib(size)}, most of it {most}; {chats} ended chats; smaller: mathrag purge --keep-last 20, --chat"


async def redis_file(deps: Deps) -> str:
    """Redis' append-only file, which Redis itself writes anew when it has doubled."""
    info = await deps.redis.info("persistence")
    try:
        percentage = (await deps.redis.config_get("auto-aof-rewrite-percentage"))["auto-aof-rewrite-percentage"]
    except ResponseError:
        percentage = "unknown"
    if percentage == "0":
        fix = "redis-cli CONFIG SET auto-aof-rewrite-percentage 100"
        raise NotReady("its append-only file is never written anew", fix=fix)
    now, then = (_mib(int(info.get(f"aof_{name}_size", 0))) for name in ("current", "base"))
    return f"append-only file {now}, {then} after its last rewrite; redis-cli BGREWRITEAOF writes it anew"


async def logs(deps: Deps) -> str:
    """The log files of `mathrag up`, which rotates them."""
    files = list((deps.settings.data_dir / "logs").glob("*.log*"))
    size = await asyncio.to_thread(_size, files)
    return f"{_mib(size)} in {len(files)} files, rotated at {deps.settings.telemetry.log_mib} MiB each"


async def index_files(deps: Deps) -> str:
    """The folders of indexes, and which of them no corpus has, or nothing refers to any more."""
    async with deps.database.transaction() as connection:
        known = {Path(row.path).name: row.used for row in await connection.execute(INDEXES)}
    folders = [folder for folder in (deps.settings.data_dir / "indexes").glob("*") if folder.is_dir()]
    idle = [folder for folder in folders if not known.get(folder.name, True)]
    lost = [folder for folder in folders if folder.name not in known]
    sizes = await asyncio.to_thread(lambda: [_mib(_size(_files(each))) for each in (folders, idle, lost)])
    said = f"{sizes[0]} in {len(folders)}; {sizes[1]} in {len(idle)} without a corpus, kept for the next upload of it"
    if lost:
        # Whatever is built at this moment is among them until it is registered.
        raise NotReady(
            f"{said}; {sizes[2]} in {len(lost)} that the database does not know",
            fix=f"while no corpus is uploaded: rm -r {' '.join(str(folder) for folder in lost)}",
        )
    return said


def _files(folders: Iterable[Path]) -> list[Path]:
    return [file for folder in folders for file in folder.rglob("*")]


def _size(files: Iterable[Path]) -> int:
    return sum(file.lstat().st_size for file in files if file.is_file())


def _mib(size: int) -> str:
    return f"{size / MIB:.1f} MiB"
