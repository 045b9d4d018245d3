"""The pages about planning say what the planner computes, and the public figures that it starts from hold together."""

import msgspec
import pytest

from services.orchestrator.api.plans import PlanView
from services.orchestrator.scheduling.whatif import DeviceWanted, ModelWanted, make_demands, make_rooms
from shared.lease.memory import ASSUMED_MARGIN, FAR_MIB, FAR_RATIO, LEARNED_MARGIN, Hardware
from shared.lease.plan import plan
from shared.models.commands import PRESETS
from shared.settings import REPOSITORY
from tests.unit.commands import Server, mathrag, says
from tools.bench.planning import CARDS, QUANTISATIONS, planned, table

DOCS = REPOSITORY / "docs"
PAGE = (DOCS / "how-to" / "planning.md").read_text("utf-8")
TABLE = (DOCS / "reference" / "planning-table.md").read_text("utf-8")


def test_the_worked_table_is_the_planners() -> None:
    assert table() in TABLE


def test_the_figures_of_the_text_are_the_codes() -> None:
    speeds = Hardware()
    for said in (
        f"the most that was learned and {LEARNED_MARGIN:.0%}".replace("%", " %"),
        f"what is assumed and {ASSUMED_MARGIN:.0%}".replace("%", " %"),
        f"a quarter (and {FAR_MIB:.0f} MiB)",
        f"| `disk_mib_s` | {speeds.disk_mib_s:.0f} |",
        f"| `gpu_mib_s` | {speeds.gpu_mib_s:.0f} |",
        f"| `cpu_mib_s` | {speeds.cpu_mib_s:.0f} |",
    ):
        assert said in PAGE, said
    assert FAR_RATIO == 0.25


@pytest.mark.parametrize(
    ("card", "quantisation", "expected"),
    [
        ("8 GB", "Q4_K_M", "staged"),
        ("8 GB", "Q8_0", None),
        ("12 GB", "Q4_K_M", "together"),
        ("12 GB", "Q8_0", "staged"),
        ("12 GB", "FP16", None),
        ("16 GB", "Q8_0", "together"),
        ("24 GB", "FP16", "together"),
    ],
)
def test_the_premise_depends_on_card_and_quantisation(card: str, quantisation: str, expected: str | None) -> None:
    chosen = planned(QUANTISATIONS[quantisation], CARDS[card]).chosen
    assert (chosen.name.partition(",")[0] if chosen else None) == expected


@pytest.mark.parametrize("name", PRESETS)
def test_sizes_of_presets_follow_from_their_parameters(name: str) -> None:
    preset = PRESETS[name]
    sizes = preset.weights_bytes
    assert sizes["f16"] == pytest.approx(2 * preset.parameters, rel=0.01)
    assert sizes["q8_0"] == pytest.approx(34 / 32 * preset.parameters, rel=0.02)
    assert 4.5 < 8 * sizes["q4_k_m"] / preset.parameters < 6.5
    assert preset.with_quantisation("q8_0").weights_bytes == sizes["q8_0"]
    with pytest.raises(KeyError):
        preset.with_quantisation("q9")


def test_the_example_is_what_the_command_shows(server: Server) -> None:
    asked = [
        ModelWanted(role="judge", preset="qwen2.5-0.5b", quantisation="f16"),
        ModelWanted(role="generate", preset="qwen2.5-7b", quantisation="q4_k_m"),
    ]
    found = plan(make_demands(asked, Hardware(), on_gpu=True), make_rooms([DeviceWanted(budget_mib=11_700)]))
    view = PlanView(chosen=found.chosen, why=found.why, others=list(found.others), resident={})
    server(says(msgspec.to_builtins(view)))
    shown = mathrag("plan", "--models", "judge=qwen2.5-0.5b:f16").stdout
    assert "\n".join(shown.splitlines()[:3]) in PAGE


def test_heads_of_presets_make_up_their_hidden_state() -> None:
    for preset in PRESETS.values():
        shape = preset.architecture
        assert shape.heads * shape.head_dim == shape.embedding
        assert shape.heads % shape.kv_heads == 0
