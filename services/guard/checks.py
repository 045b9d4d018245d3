"""Checks for `mathrag doctor`: whether a model is there, and is still the one that was registered."""

from collections.abc import Mapping

from sqlalchemy import text

from services.guard.drivers.ports import Driver, DriverError
from shared import checks
from shared.checks import RESTART, Check, NotReady, advise_setting, run_check
from shared.settings import Settings
from shared.storage.database import Database

REGISTERED = text("""
    SELECT hash, digest, version FROM models WHERE name = :name AND device = :device AND served
    ORDER BY registered_at DESC LIMIT 1""")
CHANGED_FIX = f"put the old one back; or {RESTART} and submit again the jobs that wait for the old one"


async def check_model(name: str, settings: Settings, drivers: Mapping[str, Driver], database: Database) -> Check:
    """Check the model of this name against the settings of this guard's process."""
    described = _describe_model(name, settings, drivers, database)
    return await run_check(f"model {name}", described, fix=advise_setting(f"models.{name}"))


async def _describe_model(name: str, settings: Settings, drivers: Mapping[str, Driver], database: Database) -> str:
    if name not in drivers:
        raise NotReady(
            f"model {name!r} is missing in the settings that the guard of {settings.device.id} runs with", fix=RESTART
        )
    summary = await checks.check_model(name, settings)
    try:
        now = await drivers[name].identify()
    except DriverError as error:
        raise NotReady(str(error)) from error
    async with database.transaction() as connection:
        values = {"name": name, "device": settings.device.id}
        registered = (await connection.execute(REGISTERED, values)).first()
    if registered is None:
        raise NotReady("it is found, but not registered yet", fix="wait 5 s: the guard registers it by itself")
    if registered.hash != now.hash:
        changed = _describe_difference(registered.digest, now.digest)
        changed = changed or _describe_difference(registered.version, now.version) or "its options differ"
        raise NotReady(f"it is not the one that was registered: {changed}", fix=CHANGED_FIX)
    return summary


def _describe_difference(before: str | None, now: str | None) -> str:
    return f"{(before or 'none')[:12]} then, {(now or 'none')[:12]} now" if before != now else ""
