"""The client alone: what its wheel without extras brings, made of what is installed here."""

import tomllib
from collections.abc import Iterator
from importlib.metadata import distribution, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REPOSITORY = Path(__file__).resolve().parents[1]


def distributions() -> set[str]:
    """Canonical names of the distributions that the client's dependencies lead to, without any extra."""
    project = tomllib.loads((REPOSITORY / "mathrag" / "pyproject.toml").read_text("utf-8"))["project"]
    open_ends = [Requirement(each) for each in project["dependencies"]]
    found: dict[str, set[str]] = {}
    while open_ends:
        wanted = open_ends.pop()
        name = canonicalize_name(wanted.name)
        if name in found and wanted.extras <= found[name]:
            continue
        found.setdefault(name, set()).update(wanted.extras)
        open_ends += _following(name, wanted.extras)
    return set(found)


def _following(name: str, extras: set[str]) -> Iterator[Requirement]:
    for said in requires(name) or ():
        requirement = Requirement(said)
        if requirement.marker is None or any(requirement.marker.evaluate({"extra": each}) for each in ("", *extras)):
            yield requirement


def link_into(folder: Path) -> None:
    """Make `folder` the site-packages of an installation of the client, with links to what is installed here."""
    for name in distributions():
        found = distribution(name)
        for top in {file.parts[0] for file in found.files or () if ".." not in file.parts}:
            (folder / top).symlink_to(found.locate_file(top))
