"""Serves the API and runs the scheduler: `python -m services.orchestrator --port P`."""

import argparse

from services.orchestrator.app import create_app
from shared import settings, telemetry
from shared.access import filters
from shared.access.connections import serve
from shared.runtime.advance import read_code

STOP_S = 5
"""Seconds for which open requests may delay the end of the process."""


def main() -> None:
    loaded = settings.load()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default=loaded.host)
    parser.add_argument("--port", type=int, default=loaded.port)
    parser.add_argument("--bind", help="address to listen on, if another program publishes the port on `host`")
    arguments = parser.parse_args()
    loaded = loaded.model_copy(update={"host": arguments.host})
    telemetry.start("orchestrator", loaded)
    filters.log_exposure(loaded)
    read_code(loaded.plugins)
    host = arguments.bind or arguments.host
    serve(create_app(loaded), loaded.limits, host=host, port=arguments.port, stop_s=STOP_S)


if __name__ == "__main__":
    main()
