"""What is wrong with a form, by field."""

import pytest

from services.orchestrator.web.page import list_messages, try_form
from shared.errors import Conflict, Invalid, NotFound, Unavailable

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("error", "field", "words"),
    [
        (Invalid("`params.gate.tau`: must be 1", hint="write 1"), "params.gate.tau", "must be 1. write 1"),
        (Conflict("`name`: is taken"), "name", "is taken"),
        (NotFound("no dataset 'x'", hint="see the list"), "dataset", "no dataset 'x'. see the list"),
        (Unavailable("`a` is away"), "", "`a` is away"),
    ],
)
async def test_an_error_belongs_to_the_field_that_it_names(error: Exception, field: str, words: str) -> None:
    async def answer() -> object:
        raise error

    found = await try_form(answer)
    assert (found.messages, found.error, found.value) == ({field: words}, error, None)
    assert found.others({field}) == {}
    assert found.others(set()) == {field: words}


def test_every_field_that_is_wrong_is_found() -> None:
    def check(values: dict[str, str]) -> None:
        for name, value in values.items():
            if value == "bad":
                raise Invalid(f"`{name}`: is bad")

    assert list_messages({"a": "bad", "b": "good", "c": "bad"}, check) == {"a": "is bad", "c": "is bad"}


def test_what_no_field_can_mend_ends_the_search() -> None:
    def check(_: dict[str, str]) -> None:
        raise Invalid("`elsewhere`: is bad")

    assert list_messages({"a": "1"}, check) == {"elsewhere": "is bad"}


def test_a_form_with_many_wrong_fields_is_checked_a_bounded_number_of_times() -> None:
    checks = 0

    def check(values: dict[str, str]) -> None:
        nonlocal checks
        checks += 1
        raise Invalid(f"`{next(iter(values))}`: is unknown")

    found = list_messages({f"params.x{number}": "1" for number in range(1990)}, check)
    assert checks == 20
    assert len(found) == 21
    assert "further errors" in found[""]
