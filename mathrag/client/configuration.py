"""Parameters that jobs get which do not name them."""

from mathrag.client.request import Json, Page, Request

PATH = "/v1/configuration"


def get() -> Request[Json]:
    """Parameters that jobs get which do not name them."""
    return Request(path=PATH)


def change(params: Json) -> Request[Json]:
    """Change some of them; any version will do, as names that are not sent are in nobody's way."""
    return Request(method="PATCH", path=PATH, body={"params": params}, headers={"If-Match": "*"})


def history(limit: int) -> Request[Page[Json]]:
    """Every version, newest first."""
    return Request(path=f"{PATH}/history", query={"limit": limit})
