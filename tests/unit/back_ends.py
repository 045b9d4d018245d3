"""Which back ends of retrieval the contract was tried on in this run."""

BEHIND: dict[str, str] = {}
"""Name -> what stood behind it; printed at the end of the run."""
