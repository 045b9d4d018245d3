"""Tests over a list: an error that one member raises names it."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

Given = ParamSpec("Given")
Found = TypeVar("Found")


def named(function: Callable[Given, Found], *given: Given.args, **options: Given.kwargs) -> Found:
    """What a function returns for a member of a list; an error that it raises names the member."""
    try:
        return function(*given, **options)
    except BaseException as error:
        error.add_note(f"for {given} {options or ''}"[:500])
        raise
