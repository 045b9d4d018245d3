"""Read the prompt templates and rubrics in the configured folders, once at a process's start."""

import os
import tomllib
from collections.abc import Collection, Iterator
from pathlib import Path

import msgspec

from shared.contracts.plugins import Kind, State
from shared.plugins.catalogue import NAME, Plugin
from shared.rag.prompts import Template, TemplateError

LONGEST = 65_536
"""Maximum size of a file, in bytes."""
MOST_FILES = 200
"""Maximum number of files in a folder: each query for ready samples lists all prompts."""
SUFFIXES = {Kind.TEMPLATE: ".toml", Kind.RUBRIC: ".txt"}


class UnusableFile(ValueError):
    """A file of such a folder cannot be used; the message says why."""


def find_in_folder(kind: Kind, folder: Path | None, shipped: Collection[str]) -> list[Plugin]:
    """Find every file of the folder with the kind's suffix, sorted by name; the state says what is wrong with one."""
    if folder is None:
        return []
    try:
        names = sorted(each.name for each in os.scandir(folder) if each.name.endswith(SUFFIXES[kind]))
    except OSError as error:
        problem = f"the folder cannot be read: {error.strerror}; correct `plugins.{kind.value}s` in mathrag.yaml"
        return [_plugin(kind, folder, str(folder.name), {}).with_state(State.REFUSED, problem)]
    found = list(_read_all(kind, folder, names[:MOST_FILES], shipped))
    if len(names) > MOST_FILES:
        problem = f"the folder holds {len(names)} files and may hold {MOST_FILES}: the last ones are left out"
        found.append(_plugin(kind, folder, names[MOST_FILES].rpartition(".")[0], {}).with_state(State.REFUSED, problem))
    return found


def _read_all(kind: Kind, folder: Path, names: list[str], shipped: Collection[str]) -> Iterator[Plugin]:
    for name in names:
        stem = name.removesuffix(SUFFIXES[kind])
        try:
            text = _read(folder, name)
            _check(kind, stem, text)
        except (UnusableFile, OSError) as error:
            yield _plugin(kind, folder, stem, {}).with_state(State.REFUSED, f"`{folder / name}`: {error}")
            continue
        plugin = _plugin(kind, folder, stem, {name: text})
        if stem in shipped:
            problem = f"{kind.value} {stem!r} is shipped with this program: give the file another name"
            plugin = plugin.with_state(State.SHIPPED, problem)
        yield plugin


def _plugin(kind: Kind, folder: Path, name: str, texts: dict[str, str]) -> Plugin:
    return Plugin(
        kind=kind, name=name, value=str(folder), distribution=f"plugins.{kind.value}s", version="file", texts=texts
    )


def _read(folder: Path, name: str) -> str:
    if not NAME.fullmatch(name.rpartition(".")[0]):
        raise UnusableFile("its name is not valid: use up to 41 small letters, digits and hyphens, a letter first")
    file = (folder / name).resolve()
    if not file.is_relative_to(folder.resolve()):
        raise UnusableFile(f"leads to {file}, outside its folder: copy the file into it")
    if not file.is_file():
        raise UnusableFile("is no file")
    with file.open("rb") as opened:
        content = opened.read(LONGEST + 1)
    if len(content) > LONGEST:
        raise UnusableFile(f"has more than {LONGEST} bytes: shorten it")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UnusableFile("is not UTF-8: save it as UTF-8") from error


def _check(kind: Kind, stem: str, text: str) -> None:
    if kind is Kind.RUBRIC:
        if not text.strip():
            raise UnusableFile("is empty: write what a right answer needs")
        return
    if (found := read_template(text)).id != stem:
        raise UnusableFile(f"says `id = {found.id!r}`: use the name of the file")


def read_template(text: str) -> Template:
    """Read the template in a file.

    Raises:
        UnusableFile: it is none, or uses a placeholder that it does not declare.
    """
    try:
        return msgspec.convert(tomllib.loads(text), Template)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, TemplateError) as error:
        raise UnusableFile(f"is not a template: {error}; see shared/rag/templates/cot.toml for an example") from error
