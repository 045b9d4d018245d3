"""Reports the size of everything that grows, and the command that makes it smaller."""

import asyncio
from collections.abc import Iterable
from pathlib import Path

from redis.exceptions import ResponseError
from sqlalchemy import text

from services.orchestrator.deps import Deps
from shared.checks import NotReady

MIB = 1 << 20
DATABASE = text("SELECT pg_database_size(current_database())")
LARGEST = text("""
    SELECT relname, pg_total_relation_size(oid) AS size FROM pg_class WHERE relkind = 'r'
    ORDER BY size DESC, relname LIMIT 1""")
CHATS = text("SELECT count(*) FROM jobs WHERE online AND ended_at IS NOT NULL")
INDEXES = text("""
    SELECT i.path, EXISTS (SELECT 1 FROM corpora c WHERE i.id IN (c.dense_index, c.sparse_index)) AS used
    FROM indexes i""")


async def report_database(deps: Deps) -> str:
    """Report the size of the database, its largest table, and the number of ended chats."""
    async with deps.database.transaction() as connection:
        size = (await connection.execute(DATABASE)).scalar_one()
        largest = (await connection.execute(LARGEST)).one()
        chats = (await connection.execute(CHATS)).scalar_one()
    most = f"`{largest.relname}` {_format_mib(largest.size)}"
    return (
        f"{_format_mib(size)}, most of it {most}; {chats} ended chats; reduce it: mathrag purge --keep-last 20, --chat"
    )


async def report_redis_file(deps: Deps) -> str:
    """Report the size of Redis' append-only file, which Redis itself rewrites when it has doubled."""
    info = await deps.redis.info("persistence")
    try:
        percentage = (await deps.redis.config_get("auto-aof-rewrite-percentage"))["auto-aof-rewrite-percentage"]
    except ResponseError:
        percentage = "unknown"
    if percentage == "0":
        fix = "redis-cli CONFIG SET auto-aof-rewrite-percentage 100"
        raise NotReady("its append-only file is never rewritten", fix=fix)
    now, then = (_format_mib(int(info.get(f"aof_{name}_size", 0))) for name in ("current", "base"))
    return f"append-only file {now}, {then} after its last rewrite; redis-cli BGREWRITEAOF rewrites it"


async def report_logs(deps: Deps) -> str:
    """Report the size of the log files of `mathrag up`, which rotates them."""
    files = list((deps.settings.data_dir / "logs").glob("*.log*"))
    size = await asyncio.to_thread(_sum_sizes, files)
    return f"{_format_mib(size)} in {len(files)} files, rotated at {deps.settings.telemetry.log_mib} MiB each"


async def index_files(deps: Deps) -> str:
    """Report the size of the index folders, and which of them belong to no corpus or are unknown to the database."""
    async with deps.database.transaction() as connection:
        known = {Path(row.path).name: row.used for row in await connection.execute(INDEXES)}
    folders = [folder for folder in (deps.settings.data_dir / "indexes").glob("*") if folder.is_dir()]
    idle = [folder for folder in folders if not known.get(folder.name, True)]
    lost = [folder for folder in folders if folder.name not in known]
    sizes = await asyncio.to_thread(
        lambda: [_format_mib(_sum_sizes(_list_files(each))) for each in (folders, idle, lost)]
    )
    detail = f"{sizes[0]} in {len(folders)}; {sizes[1]} in {len(idle)} without a corpus, kept for the next upload of it"
    if lost:
        # An index that is being built is among them until it is registered.
        raise NotReady(
            f"{detail}; {sizes[2]} in {len(lost)} unknown to the database",
            fix=f"while no corpus is uploaded: rm -r {' '.join(str(folder) for folder in lost)}",
        )
    return detail


def _list_files(folders: Iterable[Path]) -> list[Path]:
    return [file for folder in folders for file in folder.rglob("*")]


def _sum_sizes(files: Iterable[Path]) -> int:
    return sum(file.lstat().st_size for file in files if file.is_file())


def _format_mib(size: int) -> str:
    return f"{size / MIB:.1f} MiB"
