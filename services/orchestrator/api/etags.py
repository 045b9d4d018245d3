"""Entity tags: what a client has seen, so that it neither reads it twice nor changes what it has not seen.

The tag of a job, or of the configuration, is `"<version>-<digest>"`. The digest is of all that is shown, so a reader is
told of progress; whoever changes it is held to the version alone, which progress does not touch. A list has its digest.
"""

import hashlib
import re
from typing import Annotated, Any, NamedTuple

import msgspec
from fastapi import Depends, Header, Response

from shared.errors import BadRequest, PreconditionRequired

_TAG = r'(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"'
_TAGS = re.compile(rf"{_TAG}(?:\s*,\s*{_TAG})*")
_VERSION = re.compile(r'"(\d{1,9})-[0-9a-f]{16}"')


class Known(NamedTuple):
    """Tags of what the client has; `anything`: it asks only whether there is something."""

    tags: frozenset[str]
    anything: bool = False


def parsed(header: str, name: str) -> Known:
    """The tags in a header.

    Raises:
        BadRequest: these are no tags.
    """
    if header.strip() == "*":
        return Known(frozenset(), anything=True)
    if not _TAGS.fullmatch(header.strip()):
        raise BadRequest(f'`{name}`: must be * or tags in double quotes, such as "3-5d0c91be77aac0de"')
    return Known(frozenset(re.findall(_TAG, header)))


def _known(if_none_match: Annotated[str | None, Header(description="Tags that you have: 304.")] = None) -> Known:
    return NOTHING if if_none_match is None else parsed(if_none_match, "If-None-Match")


def _versions(
    if_match: Annotated[str | None, Header(description="Tag of it as you saw it; another version: 412.")] = None,
) -> frozenset[int] | None:
    known = None if if_match is None else parsed(if_match, "If-Match")
    return None if known is None or known.anything else versions_of(known)


def _required(
    versions: Annotated[frozenset[int] | None, Depends(_versions)],
    if_match: Annotated[str | None, Header()] = None,
) -> frozenset[int] | None:
    if if_match is None:
        raise PreconditionRequired("`If-Match`: is needed here", hint="send the ETag of it as you saw it, or *")
    return versions


NOTHING = Known(frozenset())
UNCHANGED: dict[int | str, Any] = {304: {"description": "You have it: its tag is in `If-None-Match`."}}
"""The further `responses` of an operation that looks at `Seen`."""

Seen = Annotated[Known, Depends(_known)]
Versions = Annotated[frozenset[int] | None, Depends(_versions)]
"""None: whatever the version is."""
RequiredVersions = Annotated[frozenset[int] | None, Depends(_required)]


def versions_of(known: Known) -> frozenset[int]:
    """Versions that strong tags name; a weak or foreign tag matches none."""
    return frozenset(int(found[1]) for tag in known.tags if (found := _VERSION.fullmatch(tag)))


def tag(body: bytes, version: int | None = None) -> str:
    """The strong tag of `body`, of a job or configuration at `version`."""
    digest = hashlib.sha256(body).hexdigest()[:16]
    return f'"{digest}"' if version is None else f'"{version}-{digest}"'


def tagged(
    value: Any,
    *,
    version: int | None = None,
    seen: Known = NOTHING,
    status: int = 200,
    headers: dict[str, str] | None = None,
) -> Response:
    """`value` as JSON with its tag; 304 without it where the client has seen it."""
    body = msgspec.json.encode(value)
    current = tag(body, version)
    headers = {**(headers or {}), "ETag": current}
    if seen.anything or current in {known.removeprefix("W/") for known in seen.tags}:
        return Response(status_code=304, headers=headers)
    return Response(body, status, headers, "application/json")
