"""Write and read the header `Authorization: Bearer KEY`."""


def authorization(key: str) -> dict[str, str]:
    """Return the header with `key`; empty if there is no key."""
    return {"Authorization": f"Bearer {key}"} if key else {}


def key_of(header: str) -> str | None:
    """Return the key in the header's value; None if it has none."""
    scheme, _, key = header.partition(" ")
    return key.strip() or None if scheme.lower() == "bearer" else None
