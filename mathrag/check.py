"""Results of checks: one for each requirement of a job, with a fix if it fails."""

import msgspec

DEEP_S = 120.0
"""Seconds; hashing the file of a large model takes long."""
RESTART = "restart the stack (`mathrag down`, `mathrag up --detach`; in containers `docker compose restart`)"
EDITED = f"{RESTART}: a source file was edited while it ran"


def advise_setting(setting: str) -> str:
    """Return the advice to correct a setting of mathrag.yaml and restart."""
    return f"correct `{setting}` in mathrag.yaml, then {RESTART}"


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """Result of one check."""

    name: str
    """Name of the check."""
    ok: bool
    """Whether the check succeeded."""
    detail: str = ""
    """What was found; empty if there is nothing to add."""
    fix: str = ""
    """Advice that fixes the problem; empty if the check succeeded."""


class NotReady(Exception):
    """A check failed."""

    def __init__(self, message: str, *, fix: str = "") -> None:
        """Store the message and `fix`, the advice of the check; if it is empty, the caller adds its own."""
        super().__init__(message)
        self.fix = fix
