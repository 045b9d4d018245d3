"""The links that every page has."""

from typing import NamedTuple


class NavigationLink(NamedTuple):
    """Names a page in the navigation."""

    name: str
    path: str


LINKS = (
    NavigationLink("Now", "/"),
    NavigationLink("Jobs", "/jobs"),
    NavigationLink("Compare", "/compare"),
    NavigationLink("Experiments", "/experiments"),
    NavigationLink("Corpora", "/corpora"),
    NavigationLink("Datasets", "/datasets"),
    NavigationLink("Models", "/models"),
    NavigationLink("Pipelines", "/pipelines"),
    NavigationLink("Rules", "/rules"),
    NavigationLink("Search", "/search"),
    NavigationLink("Plan", "/plan"),
    NavigationLink("Label", "/labels"),
    NavigationLink("Configuration", "/configuration"),
    NavigationLink("Doctor", "/doctor"),
)


def find_current(path: str) -> str | None:
    """Return the path of the link that the page at `path` belongs to; None if it belongs to none."""
    top = f"/{path.split('/')[1]}"
    return next((link.path for link in LINKS if link.path == top), None)
