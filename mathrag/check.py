"""The result of checking one thing that a job needs, with advice where it fails."""

import msgspec

DEEP_S = 120.0
"""Hashing the file of a large model takes a while."""
RESTART = "restart the stack (`mathrag down`, `mathrag up --detach`; in containers `docker compose restart`)"
EDITED = f"{RESTART}: a source file was edited while it ran"


def advise_setting(setting: str) -> str:
    """Return the advice to correct a setting of mathrag.yaml and restart."""
    return f"correct `{setting}` in mathrag.yaml, then {RESTART}"


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """The result of checking one thing that a job needs."""

    name: str
    """Name of the check."""
    ok: bool
    """Whether the check succeeded."""
    detail: str = ""
    """What was found; empty if there is nothing to add."""
    fix: str = ""
    """What to do; empty if the check succeeded."""


class NotReady(Exception):
    """Something was looked at, and is not as it must be."""

    def __init__(self, message: str, *, fix: str = "") -> None:
        """Keep `fix`, what to do, if the check knows it better than its caller."""
        super().__init__(message)
        self.fix = fix
