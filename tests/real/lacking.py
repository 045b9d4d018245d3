"""Why a real server cannot be had on this machine."""


class Lacking(Exception):
    """Tests that need the server are skipped with these words."""
