"""Entity tags, which spare a client a second read and prevent it from changing what it has not seen.

The tag of a job, or of the configuration, is `"<version>-<digest>"`. The digest covers everything that is shown, so
that readers notice progress. A change is checked against the version alone, which progress does not alter. The tag of a
list is its digest.
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


class KnownTags(NamedTuple):
    """Tags that the client has; `anything` means `*`, which matches whatever exists."""

    tags: frozenset[str]
    anything: bool = False


def parse_tags(header: str, name: str) -> KnownTags:
    """Parse the tags in a header.

    Raises:
        BadRequest: the header holds something other than tags.
    """
    if header.strip() == "*":
        return KnownTags(frozenset(), anything=True)
    if not _TAGS.fullmatch(header.strip()):
        raise BadRequest(f'`{name}`: must be * or tags in double quotes, such as "3-5d0c91be77aac0de"')
    return KnownTags(frozenset(re.findall(_TAG, header)))


def _read_known_tags(
    if_none_match: Annotated[
        str | None, Header(description="Tags that you have seen; answers 304 if one of them is current.")
    ] = None,
) -> KnownTags:
    return NOTHING if if_none_match is None else parse_tags(if_none_match, "If-None-Match")


def _parse_versions(
    if_match: Annotated[
        str | None, Header(description="Tag that you have seen; answers 412 if the version is another one now.")
    ] = None,
) -> frozenset[int] | None:
    known = None if if_match is None else parse_tags(if_match, "If-Match")
    return None if known is None or known.anything else get_versions(known)


def _require_versions(
    versions: Annotated[frozenset[int] | None, Depends(_parse_versions)],
    if_match: Annotated[str | None, Header()] = None,
) -> frozenset[int] | None:
    if if_match is None:
        raise PreconditionRequired("`If-Match`: is required here", hint="send the ETag that you saw, or *")
    return versions


NOTHING = KnownTags(frozenset())
UNCHANGED: dict[int | str, Any] = {
    304: {"description": "Nothing has changed: the tag is among those in `If-None-Match`."}
}
"""Further `responses` of an operation that reads `Seen`."""

Seen = Annotated[KnownTags, Depends(_read_known_tags)]
Versions = Annotated[frozenset[int] | None, Depends(_parse_versions)]
"""Versions that the client accepts; None accepts any."""
RequiredVersions = Annotated[frozenset[int] | None, Depends(_require_versions)]


def get_versions(known: KnownTags) -> frozenset[int]:
    """Return the versions that strong tags name; a weak or foreign tag matches none."""
    return frozenset(int(found[1]) for tag in known.tags if (found := _VERSION.fullmatch(tag)))


def make_tag(body: bytes, version: int | None = None) -> str:
    """Return the strong tag of `body`; `version` is that of a job or configuration."""
    digest = hashlib.sha256(body).hexdigest()[:16]
    return f'"{digest}"' if version is None else f'"{version}-{digest}"'


def respond_with_tag(
    value: Any,
    *,
    version: int | None = None,
    seen: KnownTags = NOTHING,
    status: int = 200,
    headers: dict[str, str] | None = None,
) -> Response:
    """Answer with `value` as JSON and its tag, or with 304 and no body if the client has seen it."""
    body = msgspec.json.encode(value)
    current = make_tag(body, version)
    headers = {**(headers or {}), "ETag": current}
    if seen.anything or current in {known.removeprefix("W/") for known in seen.tags}:
        return Response(status_code=304, headers=headers)
    return Response(body, status, headers, "application/json")
