"""What can be asked for, as JSON on standard input."""

import sys
from typing import Annotated, Literal

import msgspec

from shared.contracts.params import Params
from shared.errors import Invalid

Depth = Annotated[int, msgspec.Meta(ge=1, le=1000)]


class Evaluate(msgspec.Struct, frozen=True, kw_only=True, tag="eval", forbid_unknown_fields=True):
    """Measure a mode on a split, and against others."""

    folder: str
    mode: str
    split: str = "test"
    k: Depth = 100
    """Documents of every list, and of what is fused of them."""
    metrics: tuple[str, ...] = ()
    """Beside the usual ones."""
    against: tuple[str, ...] = ()
    """Modes, or files of runs."""
    run: str | None = None
    """Where the ranked lists are written, in TREC's format."""
    params: Params = Params()


class Tune(msgspec.Struct, frozen=True, kw_only=True, tag="tune", forbid_unknown_fields=True):
    """Choose a parameter of fusion on one split, and measure the choice on another."""

    folder: str
    mode: str = "weighted"
    over: Literal["dense", "rrf_k"] = "dense"
    """The share of the dense list, or the constant of reciprocal ranks."""
    split: str | None = None
    """Where it is chosen; None: `dev`, or half of the queries of `held_out` where there is no such split."""
    held_out: str = "test"
    k: Depth = 100
    metric: str = "nDCG@10"
    seed: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Of halving and of the bootstrap."""
    params: Params = Params()


Request = Evaluate | Tune


def read() -> Request:
    """The request on standard input.

    Raises:
        Invalid: it is none; the message names the field.
    """
    try:
        request: Request = msgspec.json.decode(sys.stdin.buffer.read(), type=Request)
    except msgspec.DecodeError as error:
        raise Invalid(str(error), hint="`$` stands for the request; docs/pipelines.md has all of `params`") from error
    return request
