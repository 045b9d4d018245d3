"""Experiments on a running service, which go on where they were."""

import time
from datetime import datetime
from typing import Any

from mathrag.client import experiments
from mathrag.client.client import Client
from mathrag.client.errors import Failed
from mathrag.client.experiments import Experiment
from mathrag.client.request import Request, T

POLL_S = 2.0
SAID_S = 15.0
"""Between two lines about an experiment's progress."""


def found(client: Client, request: Request[T]) -> T | None:
    """What is there, or None."""
    try:
        return client.send(request)
    except Failed as missing:
        if missing.kind != "not_found":
            raise
        return None


def run(client: Client, document: dict[str, Any], label: str) -> dict[str, Any]:
    """The experiment's report and seconds, once it has ended: submitted, resumed, or only read.

    Raises:
        Failed: jobs of it failed, also when they were resumed.
    """
    name = document["name"]
    known = found(client, experiments.get(name))
    if known is None:
        client.send(experiments.submit(document))
    elif known["state"] in ("failed", "cancelled"):
        client.send(experiments.change(name, "resume"))
    ended = _watched(client, name, label)
    if ended["state"] != "completed":
        raise Failed("internal", f"{name} is {ended['state']}: {ended['jobs']}", hint="run it again")
    began, last = datetime.fromisoformat(ended["created_at"]), datetime.fromisoformat(ended["ended_at"])
    return {"report": client.send(experiments.report(name)), "seconds": (last - began).total_seconds()}


def _watched(client: Client, name: str, label: str) -> Experiment:
    """Say how far it is until it has ended."""
    said = 0.0
    while True:
        now = client.send(experiments.get(name))
        ended = now["state"] not in ("running", "cancelling")
        if ended or time.monotonic() - said > SAID_S:
            counts, said = now["request_counts"], time.monotonic()
            done = counts["total"] - counts["in_progress"]
            left = "" if ended or now["eta_seconds"] is None else f", about {now['eta_seconds']} s left"
            print(f"  {label}: {done:,} of {counts['total']:,} samples{left}", flush=True)
        if ended:
            return now
        time.sleep(POLL_S)
