"""Distributions with plug-ins, written to a folder of their own, and processes that know no other."""

import importlib
import os
import shutil
import sys
from pathlib import Path

import pytest

from shared.pipelines import registry
from shared.plugins import loading
from shared.plugins.catalogue import Plugin
from shared.rag import answer_metrics, grading, prompts
from shared.settings import Plugins

LIMIT_S = 60.0
"""Of an import that ends."""
ASKING = '''
from shared.calls import Generate
from shared.replies import require
from shared.pipelines.registry import pipeline
from shared.rag.provenance import make_outcome


@pipeline("{name}", reads=("generate",))
def run(sample, params, library):
    """{summary}"""
    return make_outcome(require((yield Generate(template="cot", question="{asked}" + sample.question))))
'''


MARKING = """
from shared.replies import Marked
from shared.rag.grading import EXTRACTS, Grader, InvalidGold

def mark(answer, gold, rules):
    {body}

GRADER = Grader("{name}", EXTRACTS["final"], mark)
"""


def marking(name: str, body: str) -> str:
    """The source of a grader whose function has this body, of one line or of several that are indented by four."""
    return MARKING.format(name=name, body=body)


def asking(name: str, asked: str = "", summary: str = "Ask the model alone.") -> str:
    """The source of a pipeline that asks the generator once, with these words before the question."""
    return ASKING.format(name=name, asked=asked, summary=summary)


MEASURING = """
from shared.rag.answer_metrics import Metric, ask_addresses
from shared.samples import MetricScore

def measure(answer):
    {body}
    yield []

run = Metric("{name}", measure, ("{name}",))
"""


def measuring(name: str, body: str) -> str:
    """The source of a metric whose function has this body of one line."""
    return MEASURING.format(name=name, body=body)


class Site:
    """A folder that Python imports from, and the distributions in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def install(
        self,
        name: str,
        source: str | None = None,
        *,
        kind: str = "pipeline",
        version: str = "1.0",
        value: str = "",
        distribution: str = "",
    ) -> Path:
        """Write a distribution with one plug-in, over what it was before; its package's folder."""
        module = f"plugin_{name.replace('-', '_')}" if not distribution else distribution.replace("-", "_")
        distribution = distribution or f"mathrag-{name}"
        self.uninstall(distribution)
        package = self.folder / module
        package.mkdir(exist_ok=True)
        (package / "__init__.py").write_text(asking(name) if source is None else source)
        metadata = self.folder / f"{distribution.replace('-', '_')}-{version}.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
        (metadata / "entry_points.txt").write_text(f"[mathrag.{kind}s]\n{name} = {value or f'{module}:run'}\n")
        importlib.invalidate_caches()
        return package

    def uninstall(self, distribution: str) -> None:
        """Delete its metadata, as far as it is there: what is imported stays imported."""
        for folder in self.folder.glob(f"{distribution.replace('-', '_')}-*.dist-info"):
            shutil.rmtree(folder)
        importlib.invalidate_caches()


def restart(monkeypatch: pytest.MonkeyPatch, settings: Plugins | None = None) -> dict[str, Plugin]:
    """Load plug-ins as a process does that has just started; by name. Code that was tried before is not tried again."""
    registry.names()
    shipped = {name: each for name, each in registry.registered.items() if each.plugin is None}
    monkeypatch.setattr(registry, "registered", shipped)
    monkeypatch.setattr(registry, "_adopted", {})
    monkeypatch.setattr(grading, "_adopted", {})
    monkeypatch.setattr(answer_metrics, "_adopted", {})
    monkeypatch.setattr(prompts, "_adopted", {})
    prompts.template.cache_clear()
    monkeypatch.setattr(loading, "_loaded", loading.Loaded())
    for module in [name for name in sys.modules if name.startswith("plugin_")]:
        monkeypatch.delitem(sys.modules, module)
    importlib.invalidate_caches()
    loading.load_plugins(settings or Plugins(import_s=LIMIT_S))
    return {each.name: each for each in loading.get_loaded().plugins}


def site(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """A `Site` that this process and its children import from until the test ends."""
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    return Site(folder)
