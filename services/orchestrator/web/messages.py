"""What is wrong with a form, by field: the same words as the API's, beside the field that they are about."""

import re
from collections.abc import Awaitable, Callable, Collection
from typing import NamedTuple, TypeVar

from fastapi.exceptions import RequestValidationError

from services.orchestrator.api.problems import field_messages, problem_of
from shared.errors import MathragError

_NOTHING_CALLED = re.compile(r"no (\w+) ['\"]")
"""How a name that no row has is refused (`shared.storage.unknown`)."""
_FIELD = re.compile(r"`[^`]+`: ")

T = TypeVar("T")


class Tried(NamedTuple):
    """What a form led to: `value`, or `messages` about it."""

    value: object
    messages: dict[str, str]
    """By field; "": of no single one."""
    status: int = 200

    def others(self, fields: Collection[str]) -> dict[str, str]:
        """The messages that are about none of these fields of the form."""
        return {field: words for field, words in self.messages.items() if field not in fields}


async def tried(answer: Callable[[], Awaitable[object]]) -> Tried:
    """What `answer` returns, or what is wrong with the form that it read."""
    try:
        return Tried(await answer(), {})
    except RequestValidationError as error:
        return Tried(None, field_messages(error), 422)
    except MathragError as error:
        return Tried(None, _message(error), error.status)


def _message(error: MathragError) -> dict[str, str]:
    problem = problem_of(error, "")
    named = _NOTHING_CALLED.match(problem.detail)
    field = problem.field or (named[1] if named else "")
    words = _FIELD.sub("", problem.detail, count=1) if problem.field else problem.detail
    return {field: f"{words}. {problem.hint}" if problem.hint else words}
