"""`python -m services.guard --port P`: the guard of one device."""

import argparse

import uvicorn

from services.guard.app import create_app
from shared import telemetry
from shared.access import binding
from shared.settings import load


def main() -> None:
    """Serve on loopback; elsewhere only with a service key."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=8082)
    parser.add_argument("--host", default="127.0.0.1")
    options = parser.parse_args()
    settings = load()
    if refusal := binding.refusal(settings, options.host):
        parser.error(refusal)
    telemetry.start("guard", settings)
    uvicorn.run(create_app(settings), host=options.host, port=options.port, log_level="warning", log_config=None)


if __name__ == "__main__":
    main()
