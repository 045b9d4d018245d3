"""Forms: parameters of a job as their fields, and what is wrong, by field."""

from types import SimpleNamespace
from typing import Any

import httpx2
import msgspec
import pytest

from mathrag.errors import Conflict, Invalid, NotFound, Unavailable
from services.orchestrator.api.pipelines import flatten, get_names, list_sections, nest, parameters
from services.orchestrator.app import build
from services.orchestrator.web.page import list_messages, try_form
from shared.params import Params
from shared.pipelines import registry
from shared.runtime.parameters import parse_params
from shared.settings import Settings

pytestmark = pytest.mark.anyio


# Parameters of a job as the fields of a form.


def test_every_parameter_that_somebody_may_set_has_a_field_with_help() -> None:
    fields = {each.path: each for each in parameters()}
    assert {"candidates", "gate.tau", "judge.temperature", "crag.calibrated_by", "crag.similarity.upper"} <= set(fields)
    assert not {"mining", "rulerag.phrases", "crag.calibrated", "crag.calibrated.upper"} & set(fields)
    assert [each.path for each in fields.values() if not each.help] == []


@pytest.mark.parametrize(
    ("path", "kind", "bounds"),
    [
        ("candidates", "whole", "1 to 1,000"),
        ("gate.tau", "number", "-1 to 1"),
        ("self_consistency.draws", "whole", "2 to 20"),
        ("crag.upper", "number", "0 to 1"),
        ("seed", "whole", ""),
        ("fusion.method", "choice", ""),
        ("route.enabled", "flag", ""),
        ("anchors", "json", ""),
        ("grading.rubric", "lines", ""),
        ("crag.fallback", "text", ""),
    ],
)
def test_a_field_is_of_its_type_within_its_bounds(path: str, kind: str, bounds: str) -> None:
    (found,) = [each for each in parameters() if each.path == path]
    assert (found.kind, found.bounds) == (kind, bounds)


def test_defaults_are_those_that_are_configured() -> None:
    configured = parse_params({"gate": {"tau": 0.3}})
    defaults = {each.path: each.default for each in parameters(configured)}
    assert (defaults["gate.tau"], defaults["gate.items"]) == (0.3, Params().gate.items)


def test_sections_hold_what_is_read_and_nothing_else() -> None:
    found = list_sections(lambda path: path in ("gate.tau", "candidates"))
    assert [(each.name, [one.path for one in each.parameters]) for each in found] == [
        ("general", ["candidates"]), ("gate", ["gate.tau"]),
    ]  # fmt: skip
    assert get_names(found) == {"params.candidates", "params.gate.tau"}


def test_what_a_form_holds_is_typed_as_in_json() -> None:
    form = {
        "params.candidates": "5", "params.gate.tau": "0.5", "params.rerank.refuse": "true", "params.rules": "17",
        "params.enhance.terms": '{"gcd": ["hcf"]}', "params.seed": "", "name": "x",
    }  # fmt: skip
    assert nest(form) == {
        "candidates": 5, "gate": {"tau": 0.5}, "rerank": {"refuse": True}, "rules": "17",
        "enhance": {"terms": {"gcd": ["hcf"]}},
    }  # fmt: skip


@pytest.mark.parametrize("text", ["ten", "nan", "1e999", "yes", "{", "0x10", "٣x"])
def test_what_cannot_be_read_stays_a_text(text: str) -> None:
    form = {f"params.{path}": text for path in ("candidates", "route.enabled", "anchors")}
    assert nest(form) == {"candidates": text, "route": {"enabled": text}, "anchors": text}


@pytest.mark.parametrize("names", [("params.gate", "params.gate.tau"), ("params.gate.tau", "params.gate")])
def test_a_name_below_a_value_does_no_harm(names: tuple[str, str]) -> None:
    assert nest(dict.fromkeys(names, "1"))["gate"] in ("1", {"tau": 1.0})


def test_parameters_survive_a_form() -> None:
    params = parse_params({
        "candidates": 3, "crag": {"similarity": {"upper": 0.5}}, "anchors": {"negative": "bad"},
        "fusion": {"method": "weighted"}, "route": {"enabled": True}, "grading": {"rubric": "two\nlines"},
    })  # fmt: skip
    assert parse_params(nest(flatten(msgspec.to_builtins(params)))) == params


# What is wrong with a form, by field.


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


# Pipelines as they are shown.


@pytest.fixture
async def pipelines() -> dict[str, Any]:
    app = build(Settings())
    app.state.deps = SimpleNamespace(settings=Settings(), database=None)
    transport = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        return {each["name"]: each for each in (await client.get("/v1/pipelines")).json()}


async def test_every_pipeline_is_shown_with_its_parameters(pipelines: dict[str, Any]) -> None:
    assert tuple(sorted(pipelines)) == registry.list_offered()
    for shown in pipelines.values():
        assert msgspec.convert(shown["params"], Params) == Params()
        assert shown["summary"]


@pytest.mark.parametrize(
    ("name", "roles", "needs_corpus", "calibrated"),
    [
        ("closed-book", ["generate"], False, False),
        ("hybrid", ["generate", "retrieve"], True, False),
        ("mathrag-gate", ["generate", "judge", "retrieve"], True, True),
    ],
)
async def test_a_pipeline_tells_what_it_needs(
    pipelines: dict[str, Any], name: str, roles: list[str], needs_corpus: bool, calibrated: bool
) -> None:
    shown = pipelines[name]
    assert (shown["roles"], shown["needs_corpus"], shown["calibrated"]) == (roles, needs_corpus, calibrated)
