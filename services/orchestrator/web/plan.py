"""Serves `/plan`: loads and minutes of a job before it is submitted."""

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import msgspec
from fastapi import APIRouter, Response

from services.orchestrator.api import parameters
from services.orchestrator.api.plans import PlanRequest, PlanView, plan_request
from services.orchestrator.deps import Deps, RequestDeps
from services.orchestrator.web.job_form import MODELS, load_choices, select_sections
from services.orchestrator.web.messages import FormResult, try_form
from services.orchestrator.web.page import Visitor, page, parse_as
from shared.lease.plan import Option
from shared.models.commands import PRESETS
from shared.pages import formatting
from shared.pages.charts.memory import draw_memory
from shared.settings import Settings

router = APIRouter()
CARD_MIB = 12_288
"""Memory in MiB of the card that presets are planned for, if none is given."""
LARGEST_MIB = 49_152
FIELDS = frozenset({"dataset", "questions", "corpus", "pipeline", "limit", "repeats", "memory", "reuse"})
SUBMISSION_FIELDS = frozenset({"dataset", "corpus", "pipeline", "limit", "repeats", "reuse"})
"""Fields of this form, besides parameters and models, that the form for a job also has."""
QUANTISED = {
    f"{name}:{quantisation}": {"preset": name, "quantisation": quantisation}
    for name, preset in PRESETS.items()
    for quantisation in preset.weights_bytes
}
"""Models to plan with that need not be installed, by the names of the command line."""


class Card(NamedTuple):
    """Describes the device to plan for, with its memory for models in MiB."""

    device: str
    mib: int
    top: int
    """Upper end of the slider in MiB."""
    changed: bool
    """Whether it differs from the configured device."""


@page(router, "/plan")
async def what_if(visit: Visitor, deps: RequestDeps) -> Response:
    """Shows the form and the plan for its values."""
    query = {name: value for name, value in visit.request.query_params.items() if value}
    card, offered = _choose_card(query, deps.settings), await load_choices(deps)
    is_requested = "pipeline" in query
    answer = await try_form(partial(_answer, query, card, deps)) if is_requested else FormResult(None, {})
    sections = select_sections(query.get("pipeline", offered.pipeline), offered.configured)
    return visit.show(
        "plan/plan.html", title="Plan", status=answer.status, query=query, card=card, offered=offered,
        sections=sections, presets=list(QUANTISED), roles=list(deps.settings.roles), messages=answer.messages,
        others=answer.others({*FIELDS, *parameters.get_names(sections)}),
        adjusted=any(name.startswith(parameters.PREFIX) for name in query), submission=_select_submission(query),
        **make_plan_values(answer.value, card.mib),
    )  # fmt: skip


async def _answer(query: Mapping[str, str], card: Card, deps: Deps) -> PlanView:
    kept_values = {name: value for name, value in query.items() if name in SUBMISSION_FIELDS or name == "questions"}
    models = {name.removeprefix(MODELS): value for name, value in query.items() if name.startswith(MODELS)}
    questions = {"questions": kept_values.pop("questions")} if "questions" in kept_values else {}
    presets = [{"role": role, **QUANTISED[name]} for role, name in models.items() if name in QUANTISED]
    own = {role: name for role, name in models.items() if name not in QUANTISED}
    job = {**kept_values, "params": parameters.nest(query), "models": own}
    devices = [{"id": card.device, "budget_mib": card.mib}] if card.changed else []
    return await plan_request(
        parse_as(PlanRequest, {"job": job, "models": presets, "devices": devices, **questions}), deps
    )


def _choose_card(query: Mapping[str, str], settings: Settings) -> Card:
    """Return the card by the number or the slider, whichever was changed, else the configured device.

    Presets are planned for GPUs: if the service has none, a card with a memory of its own replaces its device.
    """
    first = settings.all_devices()[0]
    device, configured, top = first.id, first.models_mib, 4 * first.models_mib
    if device.startswith("cpu") and any(value in QUANTISED for value in query.values()):
        device, configured, top = "gpu:0", CARD_MIB, LARGEST_MIB
    mib = configured
    if query.get("device", device) == device:
        was, slider, typed = (_parse_mib(query.get(name), configured) for name in ("was", "card", "memory"))
        mib = slider if typed == was else typed
    return Card(device, mib, max(mib, top), changed=(device, mib) != (first.id, first.models_mib))


def _parse_mib(text: str | None, otherwise: int) -> int:
    """Parse a number of MiB; text that is no number counts as missing, because the slider sends only numbers."""
    try:
        return round(float(text)) if text else otherwise
    except (ValueError, OverflowError):
        return otherwise


def _select_submission(query: Mapping[str, str]) -> dict[str, str]:
    """Return the same values for the form that submits, without models that are not installed."""
    return {
        name: value
        for name, value in query.items()
        if name in SUBMISSION_FIELDS
        or name.startswith(parameters.PREFIX)
        or (name.startswith(MODELS) and value not in QUANTISED)
    }


def make_plan_values(answer: object, budget_mib: int) -> dict[str, Any]:
    """Return the values from which a template draws a plan; empty if there is no plan."""
    if not isinstance(answer, PlanView):
        return {"plan": None}
    ways = [each for each in (answer.chosen, *answer.others) if each is not None]
    nearest = ways[:1] if answer.chosen else sorted(ways, key=lambda each: each.peak_mib)[:1]
    return {
        "plan": answer, "fits": answer.chosen is not None or not ways, "headline": _write_headline(answer, budget_mib),
        "bars": [bar for way in nearest for bar in _draw_bars(way)],
        "ways": [(each, _get_needed_mib(each)) for each in ways],
    }  # fmt: skip


def _write_headline(answer: PlanView, budget_mib: int) -> str:
    chosen = answer.chosen
    if chosen is None:
        return f"Does not fit {budget_mib:,} MiB" if answer.others else "No model has any work"
    loads = "no load" if not chosen.loads else f"{chosen.loads} load{'s' if chosen.loads > 1 else ''}"
    budget = max((each.budget_mib for each in chosen.residencies), default=budget_mib)
    return (
        f"Fits {budget:,} MiB with {loads}, {formatting.format_duration_range(*sorted(_bound_seconds(answer, chosen)))}"
    )


def _bound_seconds(answer: PlanView, chosen: Option) -> tuple[float, float]:
    """Return the seconds with equal calls made once, and with every sample making its own."""
    return chosen.seconds if answer.shared_s is None else answer.shared_s, chosen.seconds


def _get_needed_mib(option: Option) -> int | None:
    """Return the MiB with which a refused plan would fit; None if it fits."""
    return max(each.memory_mib for each in option.residencies) if option.refused else None


def _draw_bars(option: Option) -> list[dict[str, Any]]:
    """Return every residency with its bar, all to the same scale."""
    scale = max(max(each.memory_mib, each.budget_mib) for each in option.residencies)
    return [
        {**msgspec.structs.asdict(each), "drawn": draw_memory(_list_parts(each), each.budget_mib, scale)}
        for each in option.residencies
    ]


def _list_parts(residency: Any) -> dict[str, int]:
    parts = {f"{each.name} ×{each.parallel}": each.memory_mib for each in residency.models}
    return parts | ({"retrieval": residency.retrieval_mib} if residency.retrieval_mib else {})
