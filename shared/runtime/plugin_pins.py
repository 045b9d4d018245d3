"""What a job uses of plug-ins, and of the operator's prompts and rubrics: checked and pinned at its submission."""

from collections.abc import Iterable

import msgspec

from shared.contracts.params import GradingParams, Params
from shared.contracts.plugins import Kind, PluginPin
from shared.contracts.requests import Request
from shared.errors import Invalid
from shared.pipelines.binding import Bound
from shared.pipelines.registry import Registered
from shared.plugins.loading import explain_unusable, get_usable
from shared.rag.graders import get_grader
from shared.rag.prompts import template

ANSWER_SLOTS = frozenset({"question", "context"})
_REQUEST = msgspec.json.Decoder(Request)


def pins_of(pipeline: Registered, params: Params, calls: Iterable[Bound]) -> list[PluginPin]:
    """List the plug-ins that a job's replays need; `calls` are those of its dry run."""
    used = (pipeline.plugin, get_grader(params.grading.grader).plugin)
    return [*(plugin for plugin in used if plugin is not None), *_templates(calls)]


def _templates(calls: Iterable[Bound]) -> list[PluginPin]:
    """List the operator's templates that these calls are rendered with, each once."""
    named = sorted({_REQUEST.decode(bound.body).template.partition("@")[0] for bound in calls})
    found = (get_usable(Kind.TEMPLATE, name) for name in named if name)
    return [plugin.pin for plugin in found if plugin is not None]


def check_prompt(name: str) -> None:
    """Return if the operator's prompt of this name can ask for an answer; "" is the shipped one.

    Raises:
        Invalid: there is none, it cannot be used, or it needs something else than an answer is asked for with.
    """
    if not name:
        return
    if get_usable(Kind.TEMPLATE, name) is None:
        problem = explain_unusable(Kind.TEMPLATE, name) or f"no prompt {name!r} is in the folder `plugins.templates`"
        raise Invalid(f"`params.generate.template`: {problem}", hint="mathrag plugin list")
    if strange := sorted(set(template(name).required) - ANSWER_SLOTS):
        problem = f"prompt {name!r} needs {strange}, and answers are asked for with `question` and `context`"
        raise Invalid(f"`params.generate.template`: {problem}", hint="correct the file, then restart the stack")


def with_rubric(grading: GradingParams) -> GradingParams:
    """Replace `@NAME` by the text of that rubric, so that the job keeps what its replies are rated by.

    Raises:
        Invalid: there is no such rubric, or it cannot be used.
    """
    if not grading.rubric.startswith("@"):
        return grading
    name = grading.rubric[1:]
    found = get_usable(Kind.RUBRIC, name)
    if found is None:
        problem = explain_unusable(Kind.RUBRIC, name) or f"no rubric {name!r} is in the folder `plugins.rubrics`"
        raise Invalid(f"`params.grading.rubric`: {problem}", hint="mathrag plugin list")
    return msgspec.structs.replace(grading, rubric=next(iter(found.texts.values())))
