"""What the product imports is declared, with the oldest release that is supported."""

import ast
import sys
import tomllib
from collections.abc import Iterator, Mapping
from importlib.metadata import distribution, packages_distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REPOSITORY = Path(__file__).parents[2]
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]
OWN = ("mathrag", "services", "shared", "world", "migrations")
FOLDERS = ("mathrag", "services", "shared", "migrations")
NEWER_STANDARD_LIBRARY = {"compression"}
"""Parts of the standard library from Python 3.14 on."""
UNINSTALLED = {"pynvml": "nvidia-ml-py", "sklearn": "scikit-learn"}
"""Distributions that no test installs and that are not named like their package."""


def test_every_import_of_the_product_is_a_declared_distribution() -> None:
    declared = {canonicalize_name(each.name) for each in list_requirements()}
    owners = packages_distributions()
    undeclared = {
        module: sorted(found)
        for module in sorted(set(list_imports()))
        if not declared & (found := find_owners(module, owners))
    }
    assert undeclared == {}


def test_every_dependency_of_the_wheel_has_a_lower_bound() -> None:
    bounds = {each.name: {bound.operator for bound in each.specifier} for each in list_requirements()}
    del bounds[PROJECT["name"]]
    assert [name for name, operators in bounds.items() if not operators & {">=", "=="}] == []


def list_requirements() -> list[Requirement]:
    extras = PROJECT["optional-dependencies"].values()
    return [Requirement(each) for group in (PROJECT["dependencies"], *extras) for each in group]


def list_imports() -> Iterator[str]:
    """Yield each imported module that is neither ours nor of the standard library."""
    known = {*sys.stdlib_module_names, *NEWER_STANDARD_LIBRARY, *OWN}
    for file in (file for folder in FOLDERS for file in (REPOSITORY / folder).rglob("*.py")):
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
