"""Find or upload the dataset and the corpus of `run`: stored ones, or a file, a folder or rows."""

import hashlib
import os
import re
from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from anyio import to_thread

from mathrag.client import texts
from mathrag.client.answers import CorpusUpload, DatasetUpload
from mathrag.client.errors import Conflict, Invalid, NotFound, failure
from mathrag.client.groups import corpora, datasets
from mathrag.client.groups.jobs import HasName
from mathrag.client.request import Json, Request
from mathrag.client.texts import Kind
from mathrag.client.uploads import Source
from mathrag.errors import MathragError
from mathrag.reading import paths

if TYPE_CHECKING:
    from mathrag.client.async_connection import AsyncConnection
    from mathrag.client.connection import Connection

Input = HasName | Source
"""A stored dataset or corpus, as an object or by name, or a file, a folder or rows."""
SPLIT = "train"
"""The split of a folder that `corpora.create` reads by default."""
NOUNS: dict[Kind, str] = {"datasets": "dataset", "corpora": "corpus"}
MOST_OF_A_NAME = 60
"""Largest number of characters of a file's name in the name of its dataset or corpus; the server accepts 100."""


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """A dataset or corpus on the server."""

    name: str
    indexed: bool = True
    """The corpus has its indexes; a dataset needs none."""
    warnings: tuple[str, ...] = ()
    """Warnings of the server about the upload that was just made."""


def store(client: "Connection", kind: Kind, given: Input, grader: str | None = None) -> Stored:
    """Return the stored dataset or corpus; upload a file, folder or rows unless the same content is already stored.

    Raises:
        NotFound: no stored object, file or folder has this name.
        Invalid: the text is empty.
        Conflict: the text names both a stored object and a file or folder in the working directory.
        Failed: the server rejects the upload.
    """
    if not isinstance(given, str | PathLike | Iterable):
        return Stored(name=given.name)
    if isinstance(given, str) and _may_be_name(given):
        found = _find(client, texts.get_stored(kind, given))
        if _is_stored(kind, given, found):
            return Stored(name=given)
    upload = _describe_upload(kind, given, grader)
    name = str(upload.query["name"])
    found = _find(client, texts.get_stored(kind, name))
    if found is not None and found.indexed:
        return found
    made = client.read(upload, CorpusUpload if kind == "corpora" else DatasetUpload)
    return Stored(name=name, warnings=(*getattr(made, "warnings", ()), *_warn_of_unread_files(kind, given)))


async def astore(client: "AsyncConnection", kind: Kind, given: Input, grader: str | None = None) -> Stored:
    """Do the same as `store` with the asynchronous client; read files in a thread."""
    if not isinstance(given, str | PathLike | Iterable):
        return Stored(name=given.name)
    if isinstance(given, str) and _may_be_name(given):
        found = await _afind(client, texts.get_stored(kind, given))
        if _is_stored(kind, given, found):
            return Stored(name=given)
    upload = await to_thread.run_sync(_describe_upload, kind, given, grader)
    name = str(upload.query["name"])
    found = await _afind(client, texts.get_stored(kind, name))
    if found is not None and found.indexed:
        return found
    made = await client.read(upload, CorpusUpload if kind == "corpora" else DatasetUpload)
    return Stored(name=name, warnings=(*getattr(made, "warnings", ()), *_warn_of_unread_files(kind, given)))


def _warn_of_unread_files(kind: Kind, source: Input) -> list[str]:
    if kind == "corpora" and isinstance(source, str | PathLike):
        return paths.warn_of_unread_files(Path(source), SPLIT)
    return []


def _find(client: "Connection", request: Request[Json]) -> Stored | None:
    try:
        return client.read(request, Stored)
    except NotFound:
        return None


async def _afind(client: "AsyncConnection", request: Request[Json]) -> Stored | None:
    try:
        return await client.read(request, Stored)
    except NotFound:
        return None


def _may_be_name(text: str) -> bool:
    """Return True if a text may be a stored name; a text with a separator is always a path.

    Raises:
        Invalid: the text is empty, which would be the path of the working directory.
    """
    if not text:
        raise Invalid("invalid", "the name of the dataset or corpus is empty", hint="give a name, a path or rows")
    return "/" not in text and os.sep not in text


def _is_stored(kind: Kind, text: str, found: Stored | None) -> bool:
    """Return True if the text is a stored name, False if it is the path of a file or folder here."""
    noun, is_here = NOUNS[kind], Path(text).exists()
    if found is not None and is_here:
        message = f"`{noun}`: {text!r} is both a stored {noun} and a file or folder in the working directory"
        hint = f"write './{text}' for the file or folder, or client.{kind}.get({text!r}) for the stored {noun}"
        raise Conflict("conflict", message, hint=hint)
    if found is None and not is_here:
        message = f"`{noun}`: no {noun} {text!r} is stored, and {Path.cwd()} has no file or folder of this name"
        raise NotFound(
            "not_found", message, hint=f"correct the name or path; client.{kind}.list() lists the stored names"
        )
    return found is not None


def _describe_upload(kind: Kind, source: Source, grader: str | None) -> Request[Json]:
    """Return the request that uploads the source under its name and a hash of its content.

    The hash ensures that the same content is uploaded once, and that changed content gets a new name.
    """
    if isinstance(source, str | PathLike):
        path = Path(source)
        if not path.exists():
            message = f"`{NOUNS[kind]}`: the file or folder {str(path)!r} does not exist"
            raise NotFound("not_found", message, hint=f"correct the path; relative paths start in {Path.cwd()}")
        whole = path.resolve()
        label = whole.name if path.is_dir() else whole.stem
    else:
        source, label = list(source), "rows"
    create = corpora.create("", source) if kind == "corpora" else datasets.create("", source, grader=grader)
    content = hashlib.sha256((grader or "").encode())
    try:
        for line in create.lines or ():
            content.update(line)
    except MathragError as error:
        raise failure(error) from error
    label = re.sub(r"[^A-Za-z0-9]+", "-", label)[:MOST_OF_A_NAME].strip("-") or NOUNS[kind]
    return msgspec.structs.replace(create, query={**create.query, "name": f"{label}-{content.hexdigest()[:8]}"})
