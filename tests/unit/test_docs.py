"""The documentation says what the code does, and what it tells readers to type can be run."""

import pkgutil
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import msgspec
import pytest
from pydantic import BaseModel

from services.orchestrator.api.plans import PlanView
from services.orchestrator.scheduling.whatif import DeviceWanted, ModelWanted, make_demands, make_rooms
from shared.lease.memory import ASSUMED_MARGIN, FAR_MIB, FAR_RATIO, LEARNED_MARGIN, Hardware
from shared.lease.plan import plan
from shared.models.commands import PRESETS
from shared.params import Params
from shared.pipelines import registry
from shared.rag.prompts import template
from shared.settings import REPOSITORY, Model, Settings
from tests.api_document import api_document
from tests.docs.blocks import HOW_TO, TUTORIAL, blocks_of
from tests.unit.cases import named
from tests.unit.commands import Server, mathrag, says
from tools.bench.planning import CARDS, QUANTISATIONS, planned, table

# The documentation says what the code does: names, settings, paths, links and commands, checked one by one.

DOCS = REPOSITORY / "docs"
PAGES = sorted([*REPOSITORY.glob("*.md"), *DOCS.rglob("*.md")])
NAMED_PAGES = {str(file.relative_to(REPOSITORY)): file for file in PAGES}
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
QUOTED = re.compile(r"`([^`\n]+)`")
FILE = re.compile(r"(?:\.ci|bench|docs|migrations|models|requirements|services|shared|tests|world)/[\w./-]*")
MACHINE_PATH = re.compile(r"(?<![\w.:/-])/(?:work|home|root|Users)/\w")


@cache
def page(name: str) -> str:
    return (DOCS / name).read_text("utf-8")


def row(text: str, key: str) -> str:
    return next((line for line in text.splitlines() if line.startswith("|") and f"`{key}`" in line.split("|")[1]), "")


@cache
def anchors(file: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", file.read_text("utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def leads_somewhere(file: Path, target: str) -> bool:
    path, _, anchor = target.partition("#")
    linked = (file.parent / path).resolve() if path else file
    return linked.exists() and linked.is_relative_to(REPOSITORY) and (not anchor or anchor in anchors(linked))


def fault_of_setting(key: str, default: object) -> str | None:
    if not (found := row(page("reference/settings.md"), key)):
        return "is not in a table of docs/reference/settings.md"
    shown = found.split("|")[2].strip()
    if isinstance(default, bool):
        right = shown.strip(" `") == str(default).lower()
    elif isinstance(default, int | float):
        right = shown == f"{default:.12g}"
    else:
        right = not (isinstance(default, str) and default) or shown == f"`{default}`"
    return None if right else f"is shown as {shown}, and {default!r} in the code"


def settings_keys(group: type[BaseModel] = Settings, prefix: str = "") -> Iterator[tuple[str, object]]:
    for name, field in group.model_fields.items():
        yield prefix + name, field.default
        if isinstance(field.default, BaseModel):
            yield from settings_keys(type(field.default), f"{prefix}{name}.")


def parameters(group: type[msgspec.Struct], prefix: str = "") -> Iterator[str]:
    for field in msgspec.structs.fields(group):
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            yield from parameters(field.type, f"{prefix}{field.name}.")
        else:
            yield prefix + field.name


def test_every_setting_is_documented() -> None:
    keys = [*settings_keys(), *settings_keys(Model)]
    assert {key: fault for key, default in keys if (fault := named(fault_of_setting, key, default))} == {}


def test_every_parameter_is_documented() -> None:
    assert not [name for name in parameters(Params) if f"`{name}`" not in page("reference/parameters.md")]


def test_every_pipeline_is_documented() -> None:
    assert [name for name in registry.list_offered() if not row(page("reference/pipelines.md"), name)] == []


def test_the_rubric_is_quoted_as_it_is() -> None:
    quoted = [line.strip() for line in page("explanation/pipelines.md").splitlines()]
    assert all(line.strip() in quoted for line in template("reasoning-quality").text.splitlines())


def test_every_route_is_documented() -> None:
    paths = api_document()["paths"]
    assert paths
    assert not [path for path in sorted(paths) if not re.search(rf"`{re.escape(path)}[`?]", page("reference/api.md"))]


def test_every_link_resolves() -> None:
    wrong = {}
    for name, file in NAMED_PAGES.items():
        targets = LINK.findall(FENCE.sub("", file.read_text("utf-8")))
        if lost := [each for each in targets if "://" not in each and not named(leads_somewhere, file, each)]:
            wrong[name] = lost
    assert wrong == {}


def test_every_file_that_is_named_exists() -> None:
    wrong = {}
    for name, file in NAMED_PAGES.items():
        paths = filter(FILE.fullmatch, QUOTED.findall(FENCE.sub("", file.read_text("utf-8"))))
        if missing := [path for path in paths if not (REPOSITORY / path).exists()]:
            wrong[name] = missing
    assert wrong == {}


def test_every_page_stands_in_the_navigation() -> None:
    navigation = set(re.findall(r"[\w/-]+\.md", (REPOSITORY / "mkdocs.yml").read_text("utf-8").partition("\nnav:")[2]))
    pages = {str(file.relative_to(DOCS)) for file in DOCS.rglob("*.md")}
    assert navigation == {name for name in pages if "/decisions/" not in name or name.endswith("/index.md")}


@pytest.mark.parametrize("name", re.findall(r"^::: ([\w.]+)$", page("reference/python.md"), re.MULTILINE))
def test_what_the_python_reference_describes_exists(name: str) -> None:
    assert pkgutil.resolve_name(name)


def test_the_decisions_are_listed() -> None:
    listed = set(LINK.findall(page("explanation/decisions/index.md")))
    assert {file.name for file in (DOCS / "explanation" / "decisions").glob("[0-9]*.md")} == listed


def test_commands_of_the_readme_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text("utf-8"), re.MULTILINE))
    named = re.findall(r"(?:^    |`)make ([a-z-]+)", (REPOSITORY / "README.md").read_text("utf-8"), re.MULTILINE)
    assert set(named) >= {"demo", "test", "docs"}
    assert set(named) <= targets


def test_no_file_names_a_machine() -> None:
    git = shutil.which("git")
    if git is None or not (REPOSITORY / ".git").exists():
        pytest.skip("not a clone")
    listed = subprocess.run([git, "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, check=True)
    files = [REPOSITORY / name for name in listed.stdout.decode().split("\0") if name]
    texts = ((file, file.read_bytes()) for file in files if file.is_file())
    named = {
        f"{file.relative_to(REPOSITORY)}: {found.group()}"
        for file, content in texts
        if b"\0" not in content
        for found in [MACHINE_PATH.search(content.decode("utf-8", "replace"))]
        if found
    }
    assert not named


def test_lock_files_hold_no_address() -> None:
    for file in (REPOSITORY / "requirements").glob("*.txt"):
        assert "://" not in file.read_text("utf-8"), file.name


def test_the_pipeline_that_the_guide_builds_is_the_one_that_is_shipped() -> None:
    shipped = (REPOSITORY / "shared" / "pipelines" / "self_consistency.py").read_text("utf-8")
    assert f"```python\n{shipped}```" in page("how-to/plugins.md")


# The pages about planning say what the planner computes, and the public figures that it starts from hold together.

PAGE = (DOCS / "how-to" / "planning.md").read_text("utf-8")
TABLE = (DOCS / "reference" / "planning-table.md").read_text("utf-8")


def test_the_worked_table_is_the_planners() -> None:
    assert table() in TABLE


def test_the_figures_of_the_text_are_the_codes() -> None:
    speeds = Hardware()
    for said in (
        f"the largest recorded value plus {LEARNED_MARGIN:.0%}".replace("%", " %"),
        f"the estimate plus {ASSUMED_MARGIN:.0%}".replace("%", " %"),
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


# Tutorial and how-to pages are written so that every command of theirs can be run by a test, or says why not.

GUIDES = [*TUTORIAL, *HOW_TO]
OTHERS = re.compile(r"^```(?:bash|shell|console|zsh)", re.MULTILINE)
INDENTED = re.compile(r"^\n {4}(?:\$ )?(?:mathrag|docker|curl|make|python|pip) ", re.MULTILINE)
EXCUSE = re.compile(r"^<!-- not run: ", re.MULTILINE)


def test_commands_are_fenced_so_that_they_are_run() -> None:
    texts = {str(page.relative_to(DOCS)): page.read_text("utf-8") for page in GUIDES}
    others = {page: found for page, text in texts.items() if (found := OTHERS.findall(text))}
    indented = {page: found for page, text in texts.items() if (found := INDENTED.findall(text))}
    assert others == {}
    assert indented == {}


def test_every_excuse_stands_above_a_block() -> None:
    written = {str(page.relative_to(DOCS)): len(EXCUSE.findall(page.read_text("utf-8"))) for page in GUIDES}
    excused = {str(page.relative_to(DOCS)): sum(bool(block.excuse) for block in blocks_of(page)) for page in GUIDES}
    assert {page: count for page, count in written.items() if count != excused[page]} == {}
