"""What is delivered: containers that the code understands, declared dependencies, and where processes connect to."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from importlib.metadata import distribution, packages_distributions
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from mathrag_gate.stack import control
from shared.settings import REPOSITORY, Settings, load

# What containers are configured with is what the code understands; checked without an engine.

DEPLOY = REPOSITORY / "deploy"
COMPOSE = yaml.safe_load((REPOSITORY / "docker-compose.yml").read_text())
DOCKERFILE = (REPOSITORY / "Dockerfile").read_text()


@pytest.fixture(params=sorted((DEPLOY / "config").glob("*.yaml")), ids=lambda file: file.stem)
def configured(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("MATHRAG_CONFIG", str(request.param))
    return load()


def test_a_configuration_names_a_model_for_every_role(configured: Settings) -> None:
    assert set(configured.roles.values()) <= set(configured.models)


def test_a_remote_model_is_a_service_of_the_project() -> None:
    hosts = re.findall(r'url: "http://([a-z]+):', "".join(each.read_text() for each in (DEPLOY / "config").iterdir()))
    assert set(hosts) == {"ollama", "vllm"} <= set(COMPOSE["services"])


@pytest.mark.parametrize("file", sorted(DEPLOY.glob("*.env")), ids=lambda file: file.name)
def test_an_environment_file_chooses_what_is_there(file: Path) -> None:
    chosen = dict(line.split("=", 1) for line in file.read_text().splitlines() if "=" in line and line[0] != "#")
    profiles = {profile for service in COMPOSE["services"].values() for profile in service.get("profiles", ())}
    assert chosen["COMPOSE_PROFILES"] in profiles
    assert (DEPLOY / "config" / f"{chosen.get('MATHRAG_MODELS', 'shipped')}.yaml").exists()


def test_the_search_server_is_reached_by_a_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [written] = re.findall(
        r'^write services/MATHRAG_RETRIEVAL "(.*)"$', (DEPLOY / "secrets.sh").read_text(), re.MULTILINE
    )
    secret = re.sub(r"\$\(secret \w+\)", "0f1e", written).replace('\\"', '"')
    (tmp_path / "MATHRAG_RETRIEVAL").write_text(secret)
    monkeypatch.setenv("MATHRAG_SECRETS_DIR", str(tmp_path))
    monkeypatch.setenv("MATHRAG_CONFIG", str(DEPLOY / "config" / "search.yaml"))
    retrieval = load().retrieval
    assert {retrieval.dense.backend, retrieval.sparse.backend} == {"elasticsearch"}
    url = urlsplit(retrieval.elasticsearch.url)
    assert (url.username, url.password, url.port) == ("elastic", "0f1e", 9200)
    assert url.hostname in COMPOSE["services"]
    assert "0f1e" not in repr(retrieval)


def test_every_service_has_a_target_and_a_health_check() -> None:
    stages = dict(re.findall(r"^FROM \S+ AS (\w+)\n(.*?)(?=^FROM|\Z)", DOCKERFILE, re.MULTILINE | re.DOTALL))
    services = {folder.parent.name for folder in (REPOSITORY / "services").glob("*/__main__.py")}
    assert services <= set(stages) & set(COMPOSE["services"])
    assert all("HEALTHCHECK" in stages[service] for service in services)


@pytest.mark.parametrize("service", control.SERVICES)
def test_workers_can_be_scaled(service: str) -> None:
    assert not {"container_name", "hostname", "ports"} & COMPOSE["services"][service].keys()


def test_nothing_that_is_stored_in_git_is_a_password() -> None:
    text = (REPOSITORY / "docker-compose.yml").read_text()
    assert not re.findall(r"(?i)^\s*\w*password\w*: (?!/run/secrets/)\S+", text, re.MULTILINE)


def test_every_file_that_is_mounted_exists() -> None:
    volumes = [volume for service in COMPOSE["services"].values() for volume in service.get("volumes", ())]
    mounted = [volume.partition(":")[0] for volume in volumes if isinstance(volume, str) and volume.startswith("./")]
    assert mounted
    assert not [path for path in mounted if not (REPOSITORY / path).exists()]


def test_a_container_has_no_more_rights_than_it_needs() -> None:
    theirs = {"ollama", "vllm", "elasticsearch", "jaeger", "prometheus", "grafana", "flower"}
    wrong = {}
    for name, service in COMPOSE["services"].items():
        rights = service.get("cap_drop"), service.get("security_opt"), service.get("read_only", False)
        if rights != (["ALL"], ["no-new-privileges:true"], name not in theirs):
            wrong[name] = rights
    assert wrong == {}


def test_an_image_of_others_is_pinned_by_its_minor_version() -> None:
    images = {name: service.get("image", "") for name, service in COMPOSE["services"].items()}
    pinned = re.compile(r":-[\w./-]+:v?\d+\.\d+[\w.]*\}$")
    assert {
        name: image for name, image in images.items() if not (image.startswith("mathrag-") or pinned.search(image))
    } == {}


def test_the_command_line_is_in_the_orchestrators_image() -> None:
    [stage] = re.findall(r"^FROM \S+ AS orchestrator$(.*?)^FROM ", DOCKERFILE, re.MULTILINE | re.DOTALL)
    for package in ("mathrag", "mathrag_gate"):
        assert re.search(rf"^COPY --from=code /app/{package} {package}$", DOCKERFILE, re.MULTILINE)
        assert f"!{package}\n" in (REPOSITORY / ".dockerignore").read_text()
    assert "mathrag_gate" in stage


# Where processes of ours may connect to is decided by the operator's settings, not by environment or answers.

CLIENTS = ("httpx2.AsyncClient", "httpx2.Client")
SOURCES = sorted(file for folder in ("services", "shared") for file in (REPOSITORY / folder).rglob("*.py"))
OTHER_LIBRARY = re.compile(
    r"^[ \t]*(?:import[ \t]+(?:[^\n#]*,[ \t]*)?|from[ \t]+)(requests|httpx|aiohttp|urllib3)\b", re.MULTILINE
)


def clients(file: Path) -> Iterator[dict[str | None, ast.expr]]:
    text = file.read_text("utf-8")
    for node in ast.walk(ast.parse(text)) if "httpx2" in text else ():
        if isinstance(node, ast.Call) and ast.unparse(node.func) in CLIENTS:
            yield {keyword.arg: keyword.value for keyword in node.keywords}


FOUND = [(file, arguments) for file in SOURCES for arguments in clients(file)]


def test_there_are_clients_to_look_at() -> None:
    assert len(FOUND) > 4


def test_no_client_of_a_service_asks_the_environment() -> None:
    assert [file for file, arguments in FOUND if ast.unparse(arguments["trust_env"]) != "False"] == []


def test_no_client_follows_a_redirect() -> None:
    assert [file for file, arguments in FOUND if "follow_redirects" in arguments] == []


def test_nothing_else_opens_addresses() -> None:
    texts = {file.relative_to(REPOSITORY).as_posix(): file.read_text("utf-8") for file in SOURCES}
    assert {name: found for name, text in texts.items() if (found := OTHER_LIBRARY.findall(text))} == {}


# What the product imports is declared, with the oldest release that is supported.

CLIENT, SERVER = (
    tomllib.loads((REPOSITORY / folder / "pyproject.toml").read_text("utf-8"))["project"] for folder in ("mathrag", "")
)
OWN = ("mathrag", "mathrag_gate", "services", "shared", "migrations")
FOLDERS = {"mathrag": CLIENT, "mathrag_gate": SERVER, "services": SERVER, "shared": SERVER, "migrations": SERVER}
NEWER_STANDARD_LIBRARY = {"compression"}
"""Parts of the standard library from Python 3.14 on."""
UNINSTALLED = {"pynvml": "nvidia-ml-py", "sklearn": "scikit-learn"}
"""Distributions that no test installs and that are not named like their package."""


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_import_of_a_folder_is_declared_by_its_distribution(folder: str) -> None:
    declared = {canonicalize_name(each.name) for each in list_requirements(FOLDERS[folder])}
    owners = packages_distributions()
    undeclared = {
        module: sorted(found)
        for module in sorted(set(list_imports(folder)))
        if not declared & (found := find_owners(module, owners))
    }
    assert undeclared == {}


@pytest.mark.parametrize("project", [CLIENT, SERVER], ids=["client", "server"])
def test_every_dependency_has_a_lower_bound(project: dict[str, Any]) -> None:
    bounds = {each.name: {bound.operator for bound in each.specifier} for each in list_requirements(project)}
    assert [name for name, operators in bounds.items() if not operators & {">=", "=="}] == []


def test_the_server_requires_the_client_of_its_version() -> None:
    assert f"mathrag=={CLIENT['version']}" in SERVER["dependencies"]
    assert CLIENT["version"] == SERVER["version"]


def test_what_both_distributions_require_has_the_same_bounds() -> None:
    ours, theirs = ({each.name: each.specifier for each in list_requirements(each)} for each in (CLIENT, SERVER))
    assert {name for name in ours.keys() & theirs.keys() if ours[name] != theirs[name]} == set()


def list_requirements(project: dict[str, Any]) -> list[Requirement]:
    extras = project["optional-dependencies"].values()
    return [Requirement(each) for group in (project["dependencies"], *extras) for each in group]


def list_imports(folder: str) -> Iterator[str]:
    """Yield each imported module that is neither ours nor of the standard library."""
    known = {*sys.stdlib_module_names, *NEWER_STANDARD_LIBRARY, *OWN}
    for file in (REPOSITORY / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            modules = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                modules = [f"{node.module}.{each.name}" for each in node.names]
            for module in modules:
                if module.partition(".")[0] not in known:
                    yield module


def find_owners(module: str, owners: Mapping[str, list[str]]) -> set[str]:
    """Return the distributions of a module; of a shared package, those of the longest part of its path."""
    package = module.partition(".")[0]
    candidates = owners.get(package, [UNINSTALLED.get(package, package)])
    if len(candidates) == 1:
        return {canonicalize_name(candidates[0])}
    paths = {each: {file.as_posix() for file in distribution(each).files or ()} for each in candidates}
    path = Path(*module.split("."))
    for part in (path, *path.parents):
        endings = (f"{part.as_posix()}.py", f"{part.as_posix()}/__init__.py")
        if found := {canonicalize_name(each) for each, files in paths.items() if not files.isdisjoint(endings)}:
            return found
    return {canonicalize_name(each) for each in candidates}
