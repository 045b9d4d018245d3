"""`Authorization: Bearer KEY`, written and read."""


def authorization(key: str) -> dict[str, str]:
    """The header that carries `key`; nothing for none."""
    return {"Authorization": f"Bearer {key}"} if key else {}


def key_of(header: str) -> str | None:
    """The key that the header's value carries; None where it carries none."""
    scheme, _, key = header.partition(" ")
    return key.strip() or None if scheme.lower() == "bearer" else None
