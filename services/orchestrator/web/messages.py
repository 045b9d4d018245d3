"""What is wrong with a form, by field: the same words as the API's, beside the field that they are about."""

import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import NamedTuple, TypeVar

from fastapi.exceptions import RequestValidationError

from services.orchestrator.api.problems import field_messages, problem_of
from shared.errors import MathragError

_NOTHING_CALLED = re.compile(r"no (\w+) ['\"]")
"""How a name that no row has is refused (`shared.storage.unknown`)."""
_FIELD = re.compile(r"`([^`]+)`: ")

T = TypeVar("T")


class Tried(NamedTuple):
    """What a form led to: `value`, or `messages` about it."""

    value: object
    messages: dict[str, str]
    """By field; "": of no single one."""
    status: int = 200
    error: Exception | None = None

    def others(self, fields: Collection[str]) -> dict[str, str]:
        """The messages that are about none of these fields of the form."""
        return {field: words for field, words in self.messages.items() if field not in fields}


async def tried(answer: Callable[[], Awaitable[object]]) -> Tried:
    """What `answer` returns, or what is wrong with the form that it read."""
    try:
        return Tried(await answer(), {})
    except RequestValidationError as error:
        return Tried(None, field_messages(error), 422, error)
    except MathragError as error:
        return Tried(None, _message(error), error.status, error)


def every_message(values: Mapping[str, str], check: Callable[[dict[str, str]], object]) -> dict[str, str]:
    """All that is wrong: `check` stops at the first field, so it is tried again without that field."""
    left, found = dict(values), dict[str, str]()
    while True:
        try:
            check(left)
        except RequestValidationError as error:
            new = field_messages(error)
        except MathragError as error:
            new = _message(error)
        else:
            return found
        found = new | found
        if not new.keys() & left.keys():
            return found
        left = {name: value for name, value in left.items() if name not in new}


def _message(error: MathragError) -> dict[str, str]:
    problem = problem_of(error, "")
    named = _FIELD.match(problem.detail) or _NOTHING_CALLED.match(problem.detail)
    words = _FIELD.sub("", problem.detail, count=1)
    return {named[1] if named else "": f"{words}. {problem.hint}" if problem.hint else words}
