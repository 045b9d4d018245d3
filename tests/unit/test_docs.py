"""The documentation says what the code does: names, settings, paths, links and commands, checked one by one."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import msgspec
import pytest
from pydantic import BaseModel

from shared.params import Params
from shared.pipelines import registry
from shared.rag.prompts import template
from shared.settings import REPOSITORY, Model, Settings
from tests.api_document import api_document
from tests.unit.cases import named

PAGES = sorted([*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")])
NAMED_PAGES = {str(file.relative_to(REPOSITORY)): file for file in PAGES}
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
QUOTED = re.compile(r"`([^`\n]+)`")
FILE = re.compile(r"(?:\.ci|bench|docs|migrations|models|requirements|services|shared|tests|world)/[\w./-]*")
MACHINE_PATH = re.compile(r"(?<![\w.:/-])/(?:work|home|root|Users)/\w")


@cache
def page(name: str) -> str:
    return (REPOSITORY / "docs" / name).read_text("utf-8")


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
    pages = {str(file.relative_to(REPOSITORY / "docs")) for file in (REPOSITORY / "docs").rglob("*.md")}
    assert navigation == {name for name in pages if "/decisions/" not in name or name.endswith("/index.md")}


def test_the_decisions_are_listed() -> None:
    listed = set(LINK.findall(page("explanation/decisions/index.md")))
    assert {file.name for file in (REPOSITORY / "docs" / "explanation" / "decisions").glob("[0-9]*.md")} == listed


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
    assert f"```python\n{shipped}```" in page("how-to/add-a-pipeline.md")
