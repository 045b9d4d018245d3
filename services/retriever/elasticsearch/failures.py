"""Translate failures of Elasticsearch and its client into errors that name the setting and the fix.

A server that is away, overloaded or not ready is `Unavailable`. A refused request is `Invalid`, or `TooLarge` for a
question with too many terms. A server that refuses our key or user is `Refused`, as waiting does not help.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

from elastic_transport import ConnectionTimeout, TlsError, TransportError
from elasticsearch import ApiError, UnsupportedProductError

from services.retriever.files import UnsoundIndex
from shared.errors import Invalid, MathragError, Refused, TooLarge, Unavailable
from shared.plurals import format_count

URL = "`retrieval.elasticsearch.url` (or ELASTICSEARCH_URL)"
CERTIFICATES = "`retrieval.elasticsearch.ca_certs` or `retrieval.elasticsearch.fingerprint`"
CLOSED = ("RemoteDisconnected", "BadStatusLine", "reset by peer")
"""Parts of the client's messages for a connection that was closed without a reply, as by a server that expects TLS."""
MAJOR = 9
"""Major version of the client; a server of another one answers in another format, or not at all."""
OVERLOADED = (429, 502, 503, 504)
"""Statuses of a server that is not ready or has too much to do; the same request succeeds later."""
TOO_MANY_TERMS = "too many nested clauses"
REFUSED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
"""Statuses of a server that does not know our key or user, or does not let it do this."""
PRIVILEGES: Mapping[str, tuple[str, ...]] = {"cluster": ("monitor",), "index": ("read", "write", "manage")}
"""What the key or user needs: on the cluster, and on the indexes and aliases with our prefix."""
MAKE_KEY = "docs/how-to/retrieval.md#api-key-of-elasticsearch"
_GRANTED = re.compile(r"granted by the (cluster|index) privileges \[([^\]]*)\]")


@contextmanager
def translate_errors(server: str) -> Iterator[None]:
    """Translate the errors of `server` inside the block.

    Raises:
        UnsoundIndex: it lacks an index.
        Invalid, TooLarge: it refuses the request as such.
        Refused: it does not know the key or user, or does not let it do this.
        Unavailable: it failed, also after the client's retries; nothing of it holds a key or a password.
    """
    try:
        yield
    except UnsupportedProductError as error:
        hint = f"{URL} must name an Elasticsearch {MAJOR}; forks such as OpenSearch are not supported"
        raise Unavailable(f"{_describe(server)} is not an Elasticsearch", hint=hint, what=_describe(server)) from error
    except ApiError as error:
        raise make_error(server, error.meta.status, error.body) from error
    except TransportError as error:
        message, hint = _explain_transport(error)
        raise Unavailable(f"{_describe(server)} {message}", hint=hint, what=_describe(server)) from error


def _describe(server: str) -> str:
    return f"Elasticsearch at {server}"


def refuse_reply(server: str, reply: Mapping[str, Any]) -> None:
    """Refuse one of the replies of several searches, unless all that should be searched was searched.

    Raises:
        UnsoundIndex, Invalid, TooLarge, Refused, Unavailable: as `translate_errors` does.
    """
    if "error" in reply:
        raise make_error(server, reply["status"], reply)
    failed = reply["_shards"]["failed"]
    if reply["timed_out"] or failed:
        why = "it stopped searching at its time limit (timed_out)"
        if failed:
            why = f"{format_count(failed, 'shard')} failed"
        said = f"{_describe(server)} returned only a part of the hits: {why}"
        raise Unavailable(said, hint="see its log and its load", what=_describe(server))


def find_reason(error: object) -> str:
    """Find the cause in the `error` of a reply: that of the first failed shard, or else the error itself.

    `reason` alone is "all shards failed", or empty where `allow_partial_search_results` is off.
    """
    if not isinstance(error, Mapping):
        return str(error or "")
    shards = [shard["reason"] for shard in error.get("failed_shards", ())]
    causes = map(find_reason, [*error.get("root_cause", ()), *shards, error.get("caused_by")])
    return next(filter(None, causes), None) or error.get("reason") or error.get("type") or ""


def _explain_transport(error: TransportError) -> tuple[str, str]:
    if isinstance(error, ConnectionTimeout):
        return "did not answer in time", "see its load, or raise `retrieval.elasticsearch.timeout_s`"
    if isinstance(error, TlsError):
        return _explain_tls(error.message)
    if any(sign in error.message for sign in CLOSED):
        return f"closed the connection: {error.message}", f"if it speaks TLS, write https:// in {URL}; else see its log"
    return f"cannot be reached: {error.message}", f"start it, or set {URL}, as in http://127.0.0.1:9200"


def _explain_tls(message: str) -> tuple[str, str]:
    """Describe what is wrong with the server's certificate, and how to fix it."""
    if "Fingerprints did not match" in message:
        hint = "`retrieval.elasticsearch.fingerprint` must be the SHA-256 of its certificate or its authority's"
        return f"has a certificate with another fingerprint: {message}", hint
    if "match" in message:  # the words differ between versions of Python and urllib3
        return f"has a certificate for another name: {message}", f"name it in {URL} as its certificate does"
    if "CERTIFICATE_VERIFY_FAILED" in message:
        return f"has a certificate that is not trusted: {message}", f"name its authority by {CERTIFICATES}"
    return f"refuses the TLS connection: {message}", f"if it speaks no TLS, write http:// in {URL}"


def make_error(server: str, status: int, body: object) -> MathragError:
    """Make the error for a reply with this status."""
    error = body.get("error") if isinstance(body, Mapping) else body
    why, address = find_reason(error), _describe(server)
    if status == HTTPStatus.NOT_FOUND:
        return UnsoundIndex(f"{address} does not have what was requested: {why}")
    if status in REFUSED:
        return _make_refusal(address, status, why)
    if status == HTTPStatus.NOT_ACCEPTABLE or "media_type_header_exception" in str(error):
        message = f"{address} is not supported, which needs version {MAJOR}"
        return Unavailable(message, hint=f"{URL} must name a server of version {MAJOR}", what=address)
    if status in OVERLOADED:
        hint = "wait, or see its logs; `retrieval.elasticsearch.retries`"
        return Unavailable(f"{address} is overloaded or not ready ({status}): {why}", hint=hint, what=address)
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return Unavailable(f"{address} failed ({status}): {why}", hint="see its log", what=address)
    if TOO_MANY_TERMS in why:
        return TooLarge(f"{address} refuses a question with so many terms: {why}", hint="ask a shorter question")
    return Invalid(f"{address} refuses a request ({status}): {why}", hint="see its log")


def _make_refusal(address: str, status: int, why: str) -> Refused:
    """Make the error for a key or user that the server does not know, or that lacks a privilege, which it names."""
    found = _GRANTED.search(why)
    kind, granting = (found[1], re.findall(r"\w+", found[2])) if found else ("", [])
    missing = [f"the {kind} privilege `{each}`" for each in PRIVILEGES.get(kind, ()) if each in granting]
    if missing:
        return Refused(
            f"{address} refuses us ({status}), the key or user lacks {missing[0]}: {why}",
            hint=f"grant it, or make a new key: {MAKE_KEY}",
            what=address,
        )
    hint = f"set `retrieval.elasticsearch.api_key` to a valid key (how to make one: {MAKE_KEY}), or user and password"
    return Refused(f"{address} refuses us ({status}): {why}", hint=f"{hint} in {URL}", what=address)
