"""Scripts of `.ci`, which is not a package: they are loaded by their file."""

import importlib.util
import sys
from types import ModuleType

from shared.settings import REPOSITORY


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, REPOSITORY / ".ci" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
