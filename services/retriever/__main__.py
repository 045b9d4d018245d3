"""`python -m services.retriever --port P`: serve on loopback; elsewhere only with a service key."""

import argparse

import uvicorn

from services.retriever.app import create_app
from shared import settings, telemetry
from shared.access import binding


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    arguments = parser.parse_args()
    loaded = settings.load()
    if refusal := binding.refusal(loaded, arguments.host):
        parser.error(refusal)
    telemetry.start("retriever", loaded)
    uvicorn.run(create_app(loaded), host=arguments.host, port=arguments.port, log_level="warning", log_config=None)


if __name__ == "__main__":
    main()
