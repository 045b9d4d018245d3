"""What `mathrag doctor` asks a guard: whether a model is there, and still the one that was registered."""

from collections.abc import Mapping

from sqlalchemy import text

from services.guard.drivers.ports import Driver, DriverError
from shared.checks import models
from shared.checks.check import RESTART, Check, NotReady, checked, correct
from shared.settings import Settings
from shared.storage.database import Database

REGISTERED = text("""
    SELECT hash, digest, version FROM models WHERE name = :name AND device = :device AND served
    ORDER BY registered_at DESC LIMIT 1""")
CHANGED = f"put the old one back, and all goes on; or {RESTART} and submit again what waits for the old one"


async def look(name: str, settings: Settings, drivers: Mapping[str, Driver], database: Database) -> Check:
    """The model of this name, with the settings of this process."""
    return await checked(f"model {name}", _look(name, settings, drivers, database), fix=correct(f"models.{name}"))


async def _look(name: str, settings: Settings, drivers: Mapping[str, Driver], database: Database) -> str:
    if name not in drivers:
        raise NotReady(f"the guard of {settings.device.id} runs with settings that have no model {name!r}", fix=RESTART)
    said = await models.look(name, settings)
    try:
        now = await drivers[name].identify()
    except DriverError as error:
        raise NotReady(str(error)) from error
    async with database.transaction() as connection:
        values = {"name": name, "device": settings.device.id}
        registered = (await connection.execute(REGISTERED, values)).first()
    if registered is None:
        raise NotReady("it is there, and not registered yet", fix="wait 5 s: the guard looks again by itself")
    if registered.hash != now.hash:
        changed = _difference(registered.digest, now.digest) or _difference(registered.version, now.version)
        raise NotReady(f"it is not the one that was registered: {changed or 'its options differ'}", fix=CHANGED)
    return said


def _difference(before: str | None, now: str | None) -> str:
    return f"{(before or 'none')[:12]} then, {(now or 'none')[:12]} now" if before != now else ""
