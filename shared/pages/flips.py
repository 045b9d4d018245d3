"""Explain in words why devices flip."""

from typing import Any

from shared.pages.formatting import format_duration_range

CAUSES = {
    "first": "calls asked for its models first",
    "drained": "the resident models had no calls left",
    "released": "an operator released the device",
    "drain": "an operator drains the device",
    "cpu_stalled": "the resident models waited for searches or grades that made no progress",
    "away": "the server of the resident models did not answer",
    "online": "somebody waited online for an answer",
    "aged": "a job had waited for longer than `device.max_wait_s`",
    "bounded": "the models had been resident for longer than `device.max_residency_s`",
    "retry": "the last attempt failed",
    "guard_stopped": "the guard had been stopped",
    "guard_restart": "the guard was restarted",
}


def explain_flip(flip: Any) -> str:
    """Return for example "world-judge, because the resident models had no calls left"."""
    models = ", ".join(flip["models"]) or "nothing"
    return f"{models}, because {CAUSES.get(flip['cause'], flip['cause'])}"


def describe_next_flip(flip: Any) -> str:
    """Return for example "42 calls left, then world-generator: flip in 2 to 4 min"."""
    if flip is None:
        return "No call waits for another model."
    models = f"{flip['waiting']:,} wait for {', '.join(flip['models'])}"
    if not flip["left"]:
        return f"{models}; the flip is due."
    left = f"{flip['left']:,} calls left for the resident models; {models}"
    if flip["high_s"] is None:
        return f"{left}. Too few calls ended in the last 30 s to estimate when."
    between = format_duration_range(flip["low_s"], flip["high_s"])
    return f"{left}: flip in {between}, or later if answers lead to more calls."
