"""What the retriever says to the doctor of its Elasticsearch: each state of the server, with what mends it."""

from collections.abc import Iterator
from typing import Any

import pytest

from services.retriever import checks, elasticsearch
from shared.check import Check
from shared.errors import NotFound
from shared.settings import Retrieval
from tests.doubles.search_server import SearchServer, search_server

pytestmark = pytest.mark.anyio


async def looked(url: str, **settings: Any) -> Check:
    chosen = {"url": url, **settings}
    return await checks.check_part("elasticsearch", Retrieval(elasticsearch=chosen))  # type: ignore[arg-type]


async def test_a_server_of_our_version_is_well(double: SearchServer) -> None:
    found = await looked(double.url)
    assert (found.ok, found.detail) == (True, f"Elasticsearch 9.{double.minor}")


async def test_no_address_ends_with_the_setting() -> None:
    assert "ELASTICSEARCH_URL" in (await looked("")).fix


async def test_a_server_of_another_version_is_not_well(double: SearchServer) -> None:
    double.version = 8
    found = await looked(double.url)
    assert not found.ok
    assert "is not supported" in found.detail
    assert "must name a server of version 9" in found.fix


async def test_another_product_is_not_well(double: SearchServer) -> None:
    double.product = None
    found = await looked(double.url)
    assert not found.ok
    assert "is not an Elasticsearch" in found.detail
    assert "forks such as OpenSearch are not supported" in found.fix


async def test_a_server_that_refuses_us_ends_with_the_key(double: SearchServer) -> None:
    double.credentials = {"ApiKey right"}
    found = await looked(double.url, api_key="wrong-key")
    assert not found.ok
    assert "retrieval.elasticsearch.api_key" in found.fix
    assert "wrong-key" not in str(found)


async def test_privileges_that_the_key_lacks_are_named(double: SearchServer) -> None:
    double.lacking = {"monitor", "manage"}
    found = await looked(double.url, prefix="ours")
    assert not found.ok
    assert found.detail.endswith("lacks `monitor` on the cluster, `manage` on the indexes `ours-*`")
    assert "docs/how-to/retrieval.md#api-key-of-elasticsearch" in found.fix
    double.lacking = set()
    assert (await looked(double.url)).ok


async def test_a_server_that_is_down_is_to_be_started(double: SearchServer) -> None:
    found = await looked("http://127.0.0.1:9")
    assert not found.ok
    assert "127.0.0.1:9 cannot be reached" in found.detail
    assert found.fix.startswith("start it")


async def test_what_is_not_looked_at_here_is_not_found() -> None:
    with pytest.raises(NotFound, match="elasticsearch"):
        await checks.check_part("weather", Retrieval())


async def test_other_errors_of_a_model_are_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: Any = {"kind": "gguf", "path": "/nowhere.gguf"}
    found = await checks.check_part("embeddings", Retrieval(embeddings=chosen))
    assert (found.name, found.ok) == ("embeddings", False)
    assert "/nowhere.gguf" in found.detail
