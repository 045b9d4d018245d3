"""`python -m services.guard --port P`: the guard of one device."""

import argparse
import logging

import uvicorn

from services.guard.app import create_app
from shared.settings import load


def main() -> None:
    """Serve on loopback."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=8082)
    parser.add_argument("--host", default="127.0.0.1")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    uvicorn.run(create_app(load()), host=options.host, port=options.port, log_level="warning")


if __name__ == "__main__":
    main()
