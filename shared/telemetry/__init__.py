"""What a process says about itself: logs always, traces where the operator names a collector."""

from shared.settings import Settings
from shared.telemetry import logs, traces


def start(service: str, settings: Settings) -> None:
    """Set up the logs and traces of a process that will not fork."""
    logs.configure(settings.telemetry, service)
    traces.start(settings.telemetry, service)
