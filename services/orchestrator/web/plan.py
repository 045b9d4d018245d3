"""`/plan`: loads and minutes before anything is submitted."""

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import msgspec
from fastapi import APIRouter, Response

from services.orchestrator.api import parameters
from services.orchestrator.api.plans import PlanRequest, PlanView, planned
from services.orchestrator.deps import Deps, RequestDeps
from services.orchestrator.web.job_form import MODELS, choices, read_by
from services.orchestrator.web.messages import Tried, tried
from services.orchestrator.web.page import Visitor, page, parsed
from shared.lease.options import Option
from shared.models.presets import PRESETS
from shared.pages import words
from shared.pages.charts.memory import memory
from shared.settings import Settings

router = APIRouter()
CARD_MIB = 12_288
"""Memory of the card that presets are planned for, where no other is named."""
LARGEST_MIB = 49_152
FIELDS = frozenset({"dataset", "questions", "corpus", "pipeline", "limit", "repeats", "memory", "reuse"})
KEPT = frozenset({"dataset", "corpus", "pipeline", "limit", "repeats", "reuse"})
"""What a job has of this form, besides parameters and models."""
QUANTISED = {
    f"{name}:{quantisation}": {"preset": name, "quantisation": quantisation}
    for name, preset in PRESETS.items()
    for quantisation in preset.weights_bytes
}
"""Models that need not be there, as the command line names them."""


class Card(NamedTuple):
    """The device that is planned for."""

    device: str
    mib: int
    top: int
    """Of the slider."""
    changed: bool
    """Another than the configured one."""


@page(router, "/plan")
async def what_if(visit: Visitor, deps: RequestDeps) -> Response:
    """The form, and what it would come to."""
    query = {name: value for name, value in visit.request.query_params.items() if value}
    card, offered = _card(query, deps.settings), await choices(deps)
    asked = "pipeline" in query
    answer = await tried(partial(_answer, query, card, deps)) if asked else Tried(None, {})
    sections = read_by(query.get("pipeline", offered.pipeline), offered.configured)
    return visit.show(
        "plan/plan.html", title="Plan", status=answer.status, query=query, card=card, offered=offered,
        sections=sections, presets=list(QUANTISED), roles=list(deps.settings.roles), messages=answer.messages,
        others=answer.others({*FIELDS, *parameters.names(sections)}),
        adjusted=any(name.startswith(parameters.PREFIX) for name in query), submission=_submission(query),
        **drawn(answer.value, card.mib),
    )  # fmt: skip


async def _answer(query: Mapping[str, str], card: Card, deps: Deps) -> PlanView:
    named = {name: value for name, value in query.items() if name in KEPT or name == "questions"}
    models = {name.removeprefix(MODELS): value for name, value in query.items() if name.startswith(MODELS)}
    questions = {"questions": named.pop("questions")} if "questions" in named else {}
    presets = [{"role": role, **QUANTISED[name]} for role, name in models.items() if name in QUANTISED]
    own = {role: name for role, name in models.items() if name not in QUANTISED}
    job = {**named, "params": parameters.tree(query), "models": own}
    devices = [{"id": card.device, "budget_mib": card.mib}] if card.changed else []
    return await planned(parsed(PlanRequest, {"job": job, "models": presets, "devices": devices, **questions}), deps)


def _card(query: Mapping[str, str], settings: Settings) -> Card:
    """The number that was written, or the place of the slider, whichever was changed; else what is configured.

    Presets are for GPUs: where the service has none, a card stands in its device's place, with a memory of its own.
    """
    first = settings.all_devices()[0]
    device, configured, top = first.id, first.models_mib, 4 * first.models_mib
    if device.startswith("cpu") and any(value in QUANTISED for value in query.values()):
        device, configured, top = "gpu:0", CARD_MIB, LARGEST_MIB
    mib = configured
    if query.get("device", device) == device:
        was, slider, written = (_mib(query.get(name), configured) for name in ("was", "card", "memory"))
        mib = slider if written == was else written
    return Card(device, mib, max(mib, top), changed=(device, mib) != (first.id, first.models_mib))


def _mib(text: str | None, otherwise: int) -> int:
    """What is no number is as if it were not there: a slider sends none but numbers."""
    try:
        return round(float(text)) if text else otherwise
    except (ValueError, OverflowError):
        return otherwise


def _submission(query: Mapping[str, str]) -> dict[str, str]:
    """The same values for the form that submits; models that are not there cannot be submitted."""
    return {
        name: value
        for name, value in query.items()
        if name in KEPT or name.startswith(parameters.PREFIX) or (name.startswith(MODELS) and value not in QUANTISED)
    }


def drawn(answer: object, budget_mib: int) -> dict[str, Any]:
    """What a template needs to show a plan; nothing where there is none."""
    if not isinstance(answer, PlanView):
        return {"plan": None}
    ways = [each for each in (answer.chosen, *answer.others) if each is not None]
    nearest = ways[:1] if answer.chosen else sorted(ways, key=lambda each: each.peak_mib)[:1]
    return {
        "plan": answer, "fits": answer.chosen is not None or not ways, "headline": _headline(answer, budget_mib),
        "bars": [bar for way in nearest for bar in _bars(way)],
        "ways": [(each, _needed(each)) for each in ways],
    }  # fmt: skip


def _headline(answer: PlanView, budget_mib: int) -> str:
    chosen = answer.chosen
    if chosen is None:
        return f"Does not fit {budget_mib:,} MiB" if answer.others else "No model has anything to do"
    loads = "no load" if not chosen.loads else f"{chosen.loads} load{'s' if chosen.loads > 1 else ''}"
    budget = max((each.budget_mib for each in chosen.residencies), default=budget_mib)
    return f"Fits {budget:,} MiB with {loads}, {words.seconds_between(*sorted(_seconds(answer, chosen)))}"


def _seconds(answer: PlanView, chosen: Option) -> tuple[float, float]:
    """With equal calls made once, and with every sample asking for itself."""
    return chosen.seconds if answer.shared_s is None else answer.shared_s, chosen.seconds


def _needed(option: Option) -> int | None:
    """MiB with which a refused way would fit; None: it fits."""
    return max(each.memory_mib for each in option.residencies) if option.refused else None


def _bars(option: Option) -> list[dict[str, Any]]:
    """Every residency with its picture, all to one scale."""
    scale = max(max(each.memory_mib, each.budget_mib) for each in option.residencies)
    return [
        {**msgspec.structs.asdict(each), "drawn": memory(_parts(each), each.budget_mib, scale)}
        for each in option.residencies
    ]


def _parts(residency: Any) -> dict[str, int]:
    held = {f"{each.name} ×{each.parallel}": each.memory_mib for each in residency.models}
    return held | ({"retrieval": residency.retrieval_mib} if residency.retrieval_mib else {})
