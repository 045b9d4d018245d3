"""Run experiments on a service, or resume those that have begun."""

import time
from datetime import datetime
from typing import Any

from mathrag.client import experiments
from mathrag.client.client import Client
from mathrag.client.errors import Failed
from mathrag.client.request import Request, T

POLL_S = 2.0
PRINT_INTERVAL_S = 15.0
"""Seconds between two lines about an experiment's progress."""


def find(client: Client, request: Request[T]) -> T | None:
    """Send a request; None if its object does not exist."""
    try:
        return client.send(request)
    except Failed as missing:
        if missing.kind != "not_found":
            raise
        return None


def run(client: Client, document: dict[str, Any], label: str) -> dict[str, Any]:
    """Submit or resume the experiment if needed; return its report and seconds once it has ended.

    Raises:
        Failed: if jobs of it failed, also after a resume.
    """
    name = document["name"]
    known = find(client, experiments.get(name))
    if known is None:
        client.send(experiments.submit(document))
    elif known["state"] in ("failed", "cancelled"):
        client.send(experiments.resume(name))
    printed_at = 0.0
    while True:
        now = client.send(experiments.get(name))
        is_over = now["state"] not in ("running", "cancelling")
        if is_over or time.monotonic() - printed_at > PRINT_INTERVAL_S:
            counts, printed_at = now["request_counts"], time.monotonic()
            done = counts["total"] - counts["in_progress"]
            left = "" if is_over or now["eta_seconds"] is None else f", about {now['eta_seconds']} s left"
            print(f"  {label}: {done:,} of {counts['total']:,} samples{left}", flush=True)
        if is_over:
            break
        time.sleep(POLL_S)
    if now["state"] != "completed":
        raise Failed("internal", f"{name} is {now['state']}: {now['jobs']}", hint="run it again")
    began, last = datetime.fromisoformat(now["created_at"]), datetime.fromisoformat(now["ended_at"])
    return {"report": client.send(experiments.report(name)), "seconds": (last - began).total_seconds()}
