"""The example of mathrag.yaml: every setting with its default and what it means.

Prose begins with `# `, a setting that is commented out with `#` alone: one that has an example in the place of its
default, and one whose default is a path into this package.
"""

import textwrap
from collections.abc import Iterable, Iterator
from typing import Any, get_args

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import to_jsonable_python

from shared.fields import describe_field, find_group
from shared.settings import REPOSITORY, Settings

WIDTH = 120
HEADER = """\
# yaml-language-server: $schema=config-schema.json
#
# Copy to mathrag.yaml and keep what you change. Everything here is the default, but for examples: those are commented
# out by a `#` without a blank. Check it with `mathrag config validate`; `mathrag config show` prints what holds. In the
# environment a key is MATHRAG_ and its name in capitals, levels joined by two underscores, such as
# MATHRAG_DEVICE__BUDGET_MIB=400.
"""


def example() -> str:
    """Return the whole file."""
    lines = [HEADER]
    for name, field in Settings.model_fields.items():
        lines += [*_list_setting(name, field, ""), *([""] if find_group(field) or name == "models" else [])]
    return "\n".join(lines).replace(f"{REPOSITORY}/", "").rstrip() + "\n"


def _list_setting(name: str, field: FieldInfo, indent: str) -> Iterator[str]:
    """Yield the lines of one setting; of a section also those of its settings."""
    inner = find_group(field)
    if inner is not None:
        yield from _explain(f"{indent}{name}:", describe_field(field))
        if field.examples:
            yield f"{indent}  # For example {_format_flow(field.examples[0])}"
        for each, held in inner.model_fields.items():
            yield from _list_setting(each, held, indent + "  ")
    elif isinstance(field.get_default(call_default_factory=True), dict) and field.examples:
        yield from _explain("", describe_field(field))
        yield from (f"#{line}" for line in _list_models(name, field))
    else:
        default = field.get_default()
        mark = "#" if field.examples or str(default).startswith(str(REPOSITORY)) else ""
        value = _format_flow(field.examples[0] if field.examples else default)
        yield from _explain(f"{indent}{mark}{name}: {value}", describe_field(field))


def _list_models(name: str, field: FieldInfo) -> Iterator[str]:
    """Yield the shipped models, then one of each kind; a key is explained when it occurs for the first time."""
    kind: type[BaseModel] = get_args(field.annotation)[1]
    shipped = field.get_default(call_default_factory=True)
    models = {each: model.model_dump(mode="json", exclude_unset=True) for each, model in shipped.items()}
    explained = set[str]()
    yield f"{name}:"
    for model, values in {**models, **field.examples[0]}.items():
        yield f"  {model}:"
        for key, value in values.items():
            yield from _explain(
                f"    {key}: {_format_flow(value)}", "" if key in explained else describe_field(kind.model_fields[key])
            )
        explained |= set(values)


def _explain(line: str, text: str) -> Iterable[str]:
    """Return `line` with `text` behind it where there is room, else above it."""
    if len(line) + len(text) + 3 <= WIDTH and line:
        return [f"{line} # {text}" if text else line]
    indent = line[: len(line) - len(line.lstrip())] + "# "
    wrapped = textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)
    return [*wrapped, *([line] if line else [])]


def _format_flow(value: Any) -> str:
    """Return a value on one line of YAML."""
    if isinstance(value, float):
        return f"{value:.12g}"
    found = yaml.safe_dump(to_jsonable_python(value), default_flow_style=True, sort_keys=False, width=float("inf"))
    return str(found).strip().removesuffix("...").strip()
