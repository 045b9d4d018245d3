"""What another service of ours says is wrong, passed on to the client that asked for what needs it."""

import httpx2
import msgspec


class UpstreamProblem(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a problem document that people read."""

    detail: str
    hint: str | None = None


_PROBLEM = msgspec.json.Decoder(UpstreamProblem)


def read_problem(reply: httpx2.Response, *statuses: int) -> UpstreamProblem | None:
    """The problem document of a reply with one of `statuses`; None where the reply is a success.

    Raises:
        HTTPStatusError: it has another status of a failure.
        DecodeError: it has one of `statuses`, and no problem document.
    """
    if reply.status_code in statuses:
        return _PROBLEM.decode(reply.content)
    reply.raise_for_status()
    return None
