"""Connect to the Elasticsearch server of the settings, at the first request."""

import logging
import ssl
from typing import Any

import msgspec
from elasticsearch import Elasticsearch
from elasticsearch.serializer import CompatibilityModeJsonSerializer, CompatibilityModeNdjsonSerializer

from services.retriever.elasticsearch.failures import OVERLOADED, URL
from shared import settings as settings_module
from shared.errors import Unavailable

BACK_OFF_S = 0.5
LONGEST_BACK_OFF_S = 2.0
"""Upper bound of the pause between attempts, in seconds; calls wait out longer outages, not a request."""

logging.getLogger("elastic_transport.transport").setLevel(logging.WARNING)  # it has an INFO line for each request


class _Msgspec:
    """Encodes and decodes JSON in a third of the standard library's time."""

    def json_dumps(self, data: Any) -> bytes:
        return msgspec.json.encode(data)

    def json_loads(self, data: bytes) -> Any:
        return msgspec.json.decode(data)


class _Json(_Msgspec, CompatibilityModeJsonSerializer):
    pass


class _Ndjson(_Msgspec, CompatibilityModeNdjsonSerializer):
    pass


SERIALIZERS = {each.mimetype: each() for each in (_Json, _Ndjson)}


def connect(settings: settings_module.Elasticsearch, connections: int) -> Elasticsearch:
    """Make a client for this number of threads; it connects at its first request.

    A request that is refused for now, or cannot be sent, is sent again up to `settings.retries` times, if there are
    several nodes to another one. One that timed out is not, since the server may have executed it.

    Raises:
        Unavailable: no URL is set, or the URL, the key or the file of `ca_certs` cannot be used.
    """
    try:
        urls = settings.addresses
        if not urls:
            raise Unavailable("no Elasticsearch is named", hint=f"set {URL}, as in {settings_module.SERVER_URL}")
        return Elasticsearch(
            list(urls),
            api_key=settings.api_key or None,
            request_timeout=settings.timeout_s,
            connections_per_node=connections,
            max_retries=settings.retries,
            retry_on_status=OVERLOADED,
            retry_on_timeout=False,
            retry_backoff_base=BACK_OFF_S,
            retry_backoff_cap=LONGEST_BACK_OFF_S,
            serializers=SERIALIZERS,
            **_choose_trust(settings),
        )
    except ValueError as error:
        raise Unavailable(str(error), hint=f"correct {URL}, as in {settings_module.SERVER_URL}") from None


def _choose_trust(settings: settings_module.Elasticsearch) -> dict[str, Any]:
    """Return the client's options for the server's certificate: known authorities, `ca_certs` or `fingerprint`."""
    if settings.fingerprint:
        return {"ssl_assert_fingerprint": settings.fingerprint}
    if not settings.ca_certs:
        return {}
    try:
        ssl.create_default_context(cafile=settings.ca_certs)  # the client itself would read it with the first request
        return {"ca_certs": str(settings.ca_certs)}
    except OSError as error:  # also ssl.SSLError: the file holds no certificate
        reason = error.strerror if isinstance(error, FileNotFoundError | PermissionError) else "it holds no certificate"
        hint = "name the PEM file of its authority, such as config/certs/http_ca.crt of an Elasticsearch of version 9"
        message = f"`retrieval.elasticsearch.ca_certs`: {settings.ca_certs} cannot be used: {reason}"
        raise Unavailable(message, hint=hint) from None
