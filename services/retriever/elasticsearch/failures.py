"""What Elasticsearch and its client say when something fails, as errors that name the setting and the fix.

A server that is away, overloaded or not ready is `Unavailable`. What it says of one request is `Invalid`, or `TooLarge`
for a question of too many terms.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

from elastic_transport import ConnectionTimeout, TlsError, TransportError
from elasticsearch import ApiError, UnsupportedProductError

from services.retriever.files import Unsound
from shared.errors import Invalid, MathragError, TooLarge, Unavailable

URL = "`retrieval.elasticsearch.url` (or ELASTICSEARCH_URL)"
CERTIFICATES = "`retrieval.elasticsearch.ca_certs` or `retrieval.elasticsearch.fingerprint`"
CLOSED = ("RemoteDisconnected", "BadStatusLine", "reset by peer")
"""How the client names a connection that ended in place of a reply, as one does that expects TLS."""
MAJOR = 9
"""Of the client: a server of another major version answers in another format, or not at all."""
OVERLOADED = (429, 502, 503, 504)
"""Statuses of a server that is not ready or has too much to do; the same request succeeds later."""
TOO_MANY_TERMS = "too many nested clauses"


@contextmanager
def reported(server: str) -> Iterator[None]:
    """What `server` does in the block.

    Raises:
        Unsound: it lacks an index.
        Invalid, TooLarge: it refuses the request as such.
        Unavailable: it failed, also after the client's retries; nothing of it holds a key or a password.
    """
    what = f"Elasticsearch at {server}"
    try:
        yield
    except UnsupportedProductError as error:
        hint = f"{URL} must name an Elasticsearch {MAJOR}; its forks are none"
        raise Unavailable(f"{what} is something else", hint=hint, what=what) from error
    except ApiError as error:
        raise _refusal(server, error.meta.status, error.body) from error
    except TransportError as error:
        said, hint = _transport(error)
        raise Unavailable(f"{what} {said}", hint=hint, what=what) from error


def refuse_reply(server: str, reply: Mapping[str, Any]) -> None:
    """Refuse one of the replies of several searches, unless all that should be searched was searched.

    Raises:
        Unsound, Invalid, TooLarge, Unavailable: as `reported` does.
    """
    if "error" in reply:
        raise _refusal(server, reply["status"], reply)
    failed = reply["_shards"]["failed"]
    if reply["timed_out"] or failed:
        why = f"{failed} shards failed" if failed else "it stopped searching at its time limit (timed_out)"
        what = f"Elasticsearch at {server}"
        raise Unavailable(f"{what} gives a part of the hits: {why}", hint="see its log and its load", what=what)


def reason(error: object) -> str:
    """The cause that the `error` of a reply names: that of the first shard that failed, or else the error itself.

    `reason` alone is "all shards failed", or empty where `allow_partial_search_results` is off.
    """
    if not isinstance(error, Mapping):
        return str(error or "")
    shards = [shard["reason"] for shard in error.get("failed_shards", ())]
    causes = map(reason, [*error.get("root_cause", ()), *shards, error.get("caused_by")])
    return next(filter(None, causes), None) or error.get("reason") or error.get("type") or ""


def _transport(error: TransportError) -> tuple[str, str]:
    if isinstance(error, ConnectionTimeout):
        return "did not answer in time", "see its load, or raise `retrieval.elasticsearch.timeout_s`"
    if isinstance(error, TlsError):
        return _tls(error.message)
    if any(sign in error.message for sign in CLOSED):
        return f"closed the connection: {error.message}", f"if it speaks TLS, write https:// in {URL}; else see its log"
    return f"cannot be reached: {error.message}", f"start it, or set {URL}, as in http://127.0.0.1:9200"


def _tls(message: str) -> tuple[str, str]:
    """What is wrong with the server's certificate, or that it has none."""
    if "Fingerprints did not match" in message:
        hint = "`retrieval.elasticsearch.fingerprint` must be the SHA-256 of its certificate or its authority's"
        return f"has another certificate than the fingerprint says: {message}", hint
    if "match" in message:  # the words differ between versions of Python and urllib3
        return f"has a certificate for another name: {message}", f"name it in {URL} as its certificate does"
    if "CERTIFICATE_VERIFY_FAILED" in message:
        return f"has a certificate that is not trusted: {message}", f"name its authority by {CERTIFICATES}"
    return f"makes no TLS connection with us: {message}", f"if it speaks no TLS, write http:// in {URL}"


def _refusal(server: str, status: int, body: object) -> MathragError:
    """The error of a reply with this status."""
    error = body.get("error") if isinstance(body, Mapping) else body
    why, named = reason(error), f"Elasticsearch at {server}"
    if status == HTTPStatus.NOT_FOUND:
        return Unsound(f"{named} lacks what is asked for: {why}")
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        hint = "set `retrieval.elasticsearch.api_key` to a key that may manage and write the indexes of our prefix"
        return Unavailable(f"{named} refuses us ({status}): {why}", hint=hint, what=named)
    if status == HTTPStatus.NOT_ACCEPTABLE or "media_type_header_exception" in str(error):
        said = f"{named} does not speak the language of version {MAJOR}"
        return Unavailable(said, hint=f"{URL} must name a server of version {MAJOR}", what=named)
    if status in OVERLOADED:
        hint = "wait, or see its logs; `retrieval.elasticsearch.retries`"
        return Unavailable(f"{named} is overloaded or not ready ({status}): {why}", hint=hint, what=named)
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return Unavailable(f"{named} failed ({status}): {why}", hint="see its log", what=named)
    if TOO_MANY_TERMS in why:
        return TooLarge(f"{named} takes no question of so many terms: {why}", hint="ask a shorter question")
    return Invalid(f"{named} refuses a request ({status}): {why}", hint="see its log")
