"""The requests of an evaluation, as JSON on standard input."""

import sys
from typing import Annotated, Literal

import msgspec

from shared.errors import Invalid
from shared.params import Params

Depth = Annotated[int, msgspec.Meta(ge=1, le=1000)]


class Evaluate(msgspec.Struct, frozen=True, kw_only=True, tag="eval", forbid_unknown_fields=True):
    """Measure a mode on a split, and compare it with others."""

    folder: str
    mode: str
    split: str = "test"
    k: Depth = 100
    """Number of documents in every list, and in the fused one."""
    metrics: tuple[str, ...] = ()
    """Measures beside the usual ones."""
    against: tuple[str, ...] = ()
    """Modes, or files of runs, to compare with."""
    run: str | None = None
    """File to which the ranked lists are written, in TREC's format."""
    params: Params = Params()


class Tune(msgspec.Struct, frozen=True, kw_only=True, tag="tune", forbid_unknown_fields=True):
    """Choose a parameter of fusion on one split, and measure the choice on another."""

    folder: str
    mode: str = "weighted"
    over: Literal["dense", "rrf_k"] = "dense"
    """The parameter: the share of the dense list, or the constant of reciprocal rank fusion."""
    split: str | None = None
    """Split on which the value is chosen; None: `dev`, or half of the queries of `held_out` where there is no such
    split."""
    held_out: str = "test"
    k: Depth = 100
    metric: str = "nDCG@10"
    seed: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Seed of the halving and of the bootstrap."""
    params: Params = Params()


Request = Evaluate | Tune


def read() -> Request:
    """Read the request from standard input.

    Raises:
        Invalid: it is none; the message names the field.
    """
    try:
        request: Request = msgspec.json.decode(sys.stdin.buffer.read(), type=Request)
    except msgspec.DecodeError as error:
        raise Invalid(
            str(error), hint="`$` stands for the request; docs/explanation/pipelines.md has all of `params`"
        ) from error
    return request
