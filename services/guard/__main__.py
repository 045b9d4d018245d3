"""`python -m services.guard --device ID --port P`: the guard of one device."""

import argparse
import os

from services.guard.app import create_app
from shared import telemetry
from shared.access import binding
from shared.access.serving import serve
from shared.errors import Invalid
from shared.runtime.placement import narrowed
from shared.settings import load


def main() -> None:
    """Serve on loopback; elsewhere only with a service key."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", help="one of the configuration's; by default its `device`")
    parser.add_argument("--port", type=int, default=8082)
    parser.add_argument("--host", default="127.0.0.1")
    options = parser.parse_args()
    settings = load()
    try:
        settings = narrowed(settings, options.device or settings.device.id)
    except Invalid as error:
        parser.error(error.message)
    if refusal := binding.refusal(settings, options.host):
        parser.error(refusal)
    _see_only(settings.device.id)
    telemetry.start("guard", settings)
    serve(create_app(settings), settings.limits, host=options.host, port=options.port)


def _see_only(device: str) -> None:
    """Model servers are children of the guard: what it starts finds no other GPU than its own."""
    if device.startswith(("GPU-", "MIG-")):
        os.environ["CUDA_VISIBLE_DEVICES"] = device


if __name__ == "__main__":
    main()
