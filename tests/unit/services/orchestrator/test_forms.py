"""Parameters of a job as the fields of a form."""

import msgspec
import pytest

from services.orchestrator.api.pipelines import flatten, get_names, list_sections, nest, parameters
from shared.params import Params
from shared.runtime.parameters import parse_params

pytestmark = pytest.mark.anyio


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
        ("crag.upper", "number", ""),
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
