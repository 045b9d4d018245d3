"""Run the guard of one device: `python -m services.guard --device ID --port P`."""

import argparse
import os
import sys

from mathrag.errors import Invalid
from services.guard import tuning
from services.guard.app import create_app
from shared import telemetry
from shared.access import filters
from shared.access.connections import serve
from shared.runtime.placement import find_device, settings_for_device
from shared.settings import load


def main() -> None:
    """Serve on loopback, and on other addresses only with a service key."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", help="id of a configured device; by default that of `device`")
    parser.add_argument("--port", type=int, default=8082)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--tune", metavar="MODEL", help="measure the model's speed by its slots instead of serving")
    options = parser.parse_args()
    settings = load()
    try:
        device = find_device(settings, options.tune) if options.tune else options.device or settings.device.id
        settings = settings_for_device(settings, device)
    except Invalid as error:
        parser.error(error.message)
    if options.tune:
        _restrict_to_gpu(settings.device.id)
        sys.exit(tuning.run(settings, options.tune))
    if refusal := filters.explain_refusal(settings, options.host):
        parser.error(refusal)
    _restrict_to_gpu(settings.device.id)
    telemetry.start("guard", settings)
    serve(create_app(settings), settings.limits, host=options.host, port=options.port)


def _restrict_to_gpu(device: str) -> None:
    """Hide every other GPU from this process and from the model servers that it starts."""
    if device.startswith(("GPU-", "MIG-")):
        os.environ["CUDA_VISIBLE_DEVICES"] = device


if __name__ == "__main__":
    main()
