"""`python -m services.orchestrator --port P`: serve the API and run the scheduler."""

import argparse
import logging

import uvicorn

from services.orchestrator.app import create_app
from shared import settings

STOP_S = 5
"""Longest that open requests hold back the end."""


def main() -> None:
    """Command line."""
    loaded = settings.load()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default=loaded.host)
    parser.add_argument("--port", type=int, default=loaded.port)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    # One line per poll of every watcher, from our own client.
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    uvicorn.run(
        create_app(loaded),
        host=arguments.host,
        port=arguments.port,
        log_level="warning",
        timeout_graceful_shutdown=STOP_S,
    )


if __name__ == "__main__":
    main()
