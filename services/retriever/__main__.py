"""Serve the retriever (`python -m services.retriever --port P`) on loopback; elsewhere only with a service key."""

import argparse
import gc

from services.retriever.app import create_app
from shared import settings, telemetry
from shared.access import filters
from shared.access.connections import serve


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    arguments = parser.parse_args()
    loaded = settings.load()
    if refusal := filters.explain_refusal(loaded, arguments.host):
        parser.error(refusal)
    telemetry.start("retriever", loaded)
    gc.freeze()  # a full collection, which some thousand hits set off, would look at all imported objects: 0.1 s
    serve(create_app(loaded), loaded.limits, host=arguments.host, port=arguments.port)


if __name__ == "__main__":
    main()
