"""What Elasticsearch and its client say when something fails, as errors that name the setting and the fix."""

from collections.abc import Iterator
from contextlib import contextmanager

from elastic_transport import ConnectionTimeout, TransportError
from elasticsearch import (
    ApiError,
    AuthenticationException,
    AuthorizationException,
    NotFoundError,
    UnsupportedProductError,
)

from services.retriever.files import Unsound
from shared.errors import Unavailable

URL = "`retrieval.elasticsearch.url` (or ELASTICSEARCH_URL)"
MAJOR = 9
"""Of the client: a server of another major version answers in another format, or not at all."""
_OVERLOADED = (429, 502, 503, 504)


@contextmanager
def reported(server: str) -> Iterator[None]:
    """What `server` does in the block.

    Raises:
        Unsound: it lacks an index.
        Unavailable: it failed, also after the client's retries; nothing of it holds a key or a password.
    """
    try:
        yield
    except NotFoundError as error:
        raise Unsound(f"Elasticsearch at {server} lacks what is asked for: {_reason(error)}") from error
    except (ApiError, TransportError) as error:
        said, hint = _transport(error) if isinstance(error, TransportError) else _api(error)
        what = f"Elasticsearch at {server}"
        raise Unavailable(f"{what} {said}", hint=hint, what=what) from error


def _transport(error: TransportError) -> tuple[str, str]:
    if isinstance(error, ConnectionTimeout):
        return "did not answer in time", "see its load, or raise `retrieval.elasticsearch.timeout_s`"
    return f"cannot be reached: {error.message}", f"start it, or set {URL}, as in http://127.0.0.1:9200"


def _api(error: ApiError) -> tuple[str, str]:
    status, reason = error.meta.status, _reason(error)
    match error:
        case UnsupportedProductError():
            return "is something else", f"{URL} must name an Elasticsearch {MAJOR}; its forks are none"
        case AuthenticationException() | AuthorizationException():
            hint = "set `retrieval.elasticsearch.api_key` to a key that may manage and write the indexes of our prefix"
            return f"refuses us ({status}): {reason}", hint
    if error.message == "media_type_header_exception" or status == 406:
        return f"does not speak the language of version {MAJOR}", f"{URL} must name a server of version {MAJOR}"
    if status in _OVERLOADED:
        return (
            f"is overloaded or not ready ({status}): {reason}",
            "wait, or see its logs; `retrieval.elasticsearch.retries`",
        )
    return f"refuses a request ({status}): {reason}", "see its log"


def _reason(error: ApiError) -> str:
    found = error.info.get("error") if isinstance(error.info, dict) else None
    return str(found.get("reason", error.message) if isinstance(found, dict) else error.message)
