"""Parameters that jobs get which do not name them."""

from mathrag.client.request import Json, Page, Request

PATH = "/v1/configuration"


def get() -> Request[Json]:
    """Request the parameters that jobs get which do not name them."""
    return Request(path=PATH)


def change(params: Json) -> Request[Json]:
    """Change the given parameters, whatever the current version is; the others keep their values."""
    return Request(method="PATCH", path=PATH, body={"params": params}, headers={"If-Match": "*"})


def restore(version: int) -> Request[Json]:
    """Have an earlier version hold again."""
    return Request(method="POST", path=f"{PATH}/restore", body={"version": version}, headers={"If-Match": "*"})


def history(limit: int) -> Request[Page[Json]]:
    """Request the versions of the configuration, newest first."""
    return Request(path=f"{PATH}/history", query={"limit": limit})
