"""The links that stand on every page."""

from typing import NamedTuple


class Link(NamedTuple):
    """A link of the navigation."""

    name: str
    path: str


LINKS = (
    Link("Now", "/"),
    Link("Jobs", "/jobs"),
    Link("Compare", "/compare"),
    Link("Experiments", "/experiments"),
    Link("Corpora", "/corpora"),
    Link("Datasets", "/datasets"),
    Link("Models", "/models"),
    Link("Pipelines", "/pipelines"),
    Link("Rules", "/rules"),
    Link("Search", "/search"),
    Link("Plan", "/plan"),
    Link("Label", "/labels"),
    Link("Configuration", "/configuration"),
    Link("Doctor", "/doctor"),
)


def current(path: str) -> str | None:
    """The path of the link under which the page at `path` stands; None: under none."""
    top = f"/{path.split('/')[1]}"
    return next((link.path for link in LINKS if link.path == top), None)
