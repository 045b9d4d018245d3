"""Why devices flip, in words."""

from typing import Any

from shared.pages.words import seconds_between

CAUSES = {
    "first": "its models were the first that calls asked for",
    "drained": "what was resident had no calls left",
    "released": "an operator released the device",
    "drain": "an operator wants the device empty",
    "cpu_stalled": "what was resident waited for searches or grades that made no progress",
    "away": "the server of what was resident was away",
    "online": "somebody waited online for an answer",
    "aged": "a job had waited for longer than `device.max_wait_s`",
    "bounded": "what was resident had been there for longer than `device.max_residency_s`",
    "retry": "the try before had failed",
    "guard_stopped": "the guard had been stopped",
    "guard_restart": "the guard was started again",
}


def why(flip: Any) -> str:
    """Such as "world-judge, because what was resident had no calls left"."""
    models = ", ".join(flip["models"]) or "nothing"
    return f"{models}, because {CAUSES.get(flip['cause'], flip['cause'])}"


def next_in_words(flip: Any) -> str:
    """Such as "42 calls left, then world-generator: flip in 2 to 4 min"."""
    if flip is None:
        return "No call waits for another model."
    models = f"{flip['waiting']:,} wait for {', '.join(flip['models'])}"
    if not flip["left"]:
        return f"{models}; the flip is due."
    left = f"{flip['left']:,} calls left for what is resident; {models}"
    if flip["high_s"] is None:
        return f"{left}. Too few calls ended in the last 30 s to say when."
    return (
        f"{left}: flip in {seconds_between(flip['low_s'], flip['high_s'])}, or later where answers lead to more calls."
    )
