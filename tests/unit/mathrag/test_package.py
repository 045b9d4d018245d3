"""`import mathrag` costs nothing, and its names are there."""

import subprocess
import sys

import pytest

import mathrag

HEAVY_FOR_SCRIPTS = {
    "celery", "faiss", "fastapi", "numpy", "pandas", "polars", "pyarrow", "pydantic", "redis", "scipy", "services",
    "sqlalchemy", "tools", "torch",
}  # fmt: skip


def imported_by(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def test_the_package_alone_imports_nothing() -> None:
    assert not imported_by("import mathrag") & ({"httpx2", "msgspec", "anyio"} | HEAVY_FOR_SCRIPTS)


def test_clients_import_what_they_need() -> None:
    client = "client = mathrag.Client('http://127.0.0.1:1'); client.jobs; client.corpora; client.rules; client.pipeline"
    assert not imported_by(f"import mathrag; {client}; mathrag.AsyncClient") & HEAVY_FOR_SCRIPTS


def test_a_name_that_there_is_not_is_an_attribute_error() -> None:
    assert {"Client", "AsyncClient", "Failed"} <= set(dir(mathrag))
    with pytest.raises(AttributeError, match="Clinet"):
        mathrag.Clinet  # noqa: B018
