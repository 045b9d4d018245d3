"""What all rings share."""

import pytest


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Async tests run on asyncio only: so does everything else here."""
    return "asyncio"
