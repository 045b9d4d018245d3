"""Collects the errors of a form by field, in the API's words, to show each beside its field."""

import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import NamedTuple, TypeVar

from fastapi.exceptions import RequestValidationError

from services.orchestrator.api.problems import list_field_messages, make_problem
from shared.errors import MathragError

_NOTHING_CALLED = re.compile(r"no (\w+) ['\"]")
"""How `shared.storage.database` begins the message about a name that does not exist."""
_FIELD = re.compile(r"`([^`]+)`: ")
MOST_CHECKS = 20
"""Upper bound of the checks of one form; each takes time that grows with its fields."""

T = TypeVar("T")


class FormResult(NamedTuple):
    """The result of a form: `value`, or `messages` about what is wrong."""

    value: object
    messages: dict[str, str]
    """Messages by field; those under "" belong to no single field."""
    status: int = 200
    error: Exception | None = None

    def others(self, fields: Collection[str]) -> dict[str, str]:
        """Return the messages that belong to none of these fields."""
        return {field: words for field, words in self.messages.items() if field not in fields}


async def try_form(answer: Callable[[], Awaitable[object]]) -> FormResult:
    """Return what `answer` returns, or the errors of the form that it read."""
    try:
        return FormResult(await answer(), {})
    except RequestValidationError as error:
        return FormResult(None, list_field_messages(error), 422, error)
    except MathragError as error:
        return FormResult(None, _make_message(error), error.status, error)


def list_messages(values: Mapping[str, str], check: Callable[[dict[str, str]], object]) -> dict[str, str]:
    """Return the errors by field: `check` stops at the first wrong field, so it is repeated without that field, at most
    `MOST_CHECKS` times.
    """
    left, found = dict(values), dict[str, str]()
    for _ in range(MOST_CHECKS):
        try:
            check(left)
        except RequestValidationError as error:
            new = list_field_messages(error)
        except MathragError as error:
            new = _make_message(error)
        else:
            return found
        found = new | found
        if not new.keys() & left.keys():
            return found
        left = {name: value for name, value in left.items() if name not in new}
    return {"": "there may be further errors: correct these first"} | found


def _make_message(error: MathragError) -> dict[str, str]:
    problem = make_problem(error, "")
    match = _FIELD.match(problem.detail) or _NOTHING_CALLED.match(problem.detail)
    words = _FIELD.sub("", problem.detail, count=1)
    return {match[1] if match else "": f"{words}. {problem.hint}" if problem.hint else words}
