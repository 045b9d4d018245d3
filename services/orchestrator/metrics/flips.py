"""Counts flips and model loads, each once, when its residency has opened or failed."""

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from services.orchestrator.metrics.metric_values import MetricValues

NEWEST = text("SELECT COALESCE(max(epoch), 0) FROM residencies")
# Wait for a minute: by then the insert of a residency is visible, even if a younger one has already ended.
YOUNGER = text("""
    SELECT epoch, device, cause, servers, opened_at IS NOT NULL AS opened,
           COALESCE(opened_at, closed_at) IS NOT NULL AS known,
           COALESCE(closed_at < now() - interval '1 minute', false) AS over
    FROM residencies WHERE epoch > :settled ORDER BY epoch""")


class Flips:
    """Counts flips since this process began to watch."""

    def __init__(self, values: MetricValues) -> None:
        self._values = values
        self._settled: int | None = None
        """Residencies up to this epoch are not looked at again."""
        self._counted: set[int] = set()

    async def update(self, connection: AsyncConnection) -> None:
        """Count the residencies that have opened or failed since the last call."""
        if self._settled is None:
            self._settled = (await connection.execute(NEWEST)).scalar_one()
            return
        rows = (await connection.execute(YOUNGER, {"settled": self._settled})).all()
        for row in rows:
            if row.known and row.epoch not in self._counted:
                self._counted.add(row.epoch)
                self._count(row.device, row.cause, row.servers, opened=row.opened)
        for row in rows:
            if not row.over:
                break
            self._settled = row.epoch
            self._counted.discard(row.epoch)

    def _count(self, device: str, cause: str, servers: list[dict[str, object]], *, opened: bool) -> None:
        self._values.count("mathrag_flips_total", [device, cause, "opened" if opened else "failed"], 1)
        for server in servers:
            labels = [device, str(server["name"])]
            self._values.count("mathrag_model_loads_total", labels, 1)
            self._values.count("mathrag_model_load_seconds_total", labels, float(str(server["seconds"])))
