"""The dataset and the corpus of `run`: stored ones, or a file, folder or rows that are uploaded first."""

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
"""Characters of a file's name in the name of its collection; the server takes 100."""


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """A dataset or corpus that the server has."""

    name: str
    indexed: bool = True
    """Whether a corpus has its indexes; a dataset has none."""
    warnings: tuple[str, ...] = ()
    """What the server says about an upload that was made just now."""


def store(client: "Connection", kind: Kind, given: Input, grader: str | None = None) -> Stored:
    """Return the stored dataset or corpus; a file, folder or rows are uploaded unless the same are stored already.

    Raises:
        NotFound: nothing is stored under this name, and there is no such file or folder.
        Invalid: the text is empty.
        Conflict: the text names something stored, and a file or folder here as well.
        Failed: the upload is refused.
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
    """Do the same as `store` with the asynchronous client; files are read in a thread."""
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
    """Tell whether a text may be the name of something stored; one with a separator is always a path.

    Raises:
        Invalid: it is empty, which would be the path of the working directory.
    """
    if not text:
        raise Invalid("invalid", "the dataset or corpus is an empty text", hint="give a name, a path or rows")
    return "/" not in text and os.sep not in text


def _is_stored(kind: Kind, text: str, found: Stored | None) -> bool:
    """Tell whether the text is a stored name; if not, it is the path of a file or folder here."""
    noun, is_here = NOUNS[kind], Path(text).exists()
    if found is not None and is_here:
        message = f"`{noun}`: {text!r} is the name of a stored {noun}, and there is a file or folder {text!r} here"
        hint = f"write './{text}' for the file or folder, or client.{kind}.get({text!r}) for the stored {noun}"
        raise Conflict("conflict", message, hint=hint)
    if found is None and not is_here:
        message = f"`{noun}`: no {noun} {text!r} is stored, and {Path.cwd()} has no file or folder of this name"
        raise NotFound("not_found", message, hint=f"client.{kind}.list() lists what is stored")
    return found is not None


def _describe_upload(kind: Kind, source: Source, grader: str | None) -> Request[Json]:
    """Return the request that uploads the source under its name and a hash of its content.

    So the same content is uploaded once, and changed content never meets a name that is taken.
    """
    if isinstance(source, str | PathLike):
        path = Path(source)
        if not path.exists():
            message = f"`{NOUNS[kind]}`: there is no file or folder {str(path)!r}"
            raise NotFound("not_found", message, hint=f"correct the path; relative ones begin in {Path.cwd()}")
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
