"""The links that every page has."""

from typing import NamedTuple


class NavigationLink(NamedTuple):
    """Names a page in the navigation."""

    name: str
    path: str
    operators_only: bool = False


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
    NavigationLink("Keys", "/keys", operators_only=True),
)


def find_current(path: str) -> str | None:
    """Return the path of the link that the page at `path` belongs to; None if it belongs to none."""
    top = f"/{path.split('/')[1]}"
    return next((link.path for link in LINKS if link.path == top), None)
