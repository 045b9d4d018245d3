"""`python -m shared.runtime.plugin_trial PARENT KIND NAME MODULE:ATTRIBUTE`: import a plug-in, and say how it went.

The process of `shared/plugins/loading.py`. A pipeline is also run dry, so that one that never ends is found here and
not in a service.
"""

import os
import resource
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from importlib import metadata
from typing import Any

import msgspec

from shared.plugins.loading import TrialResult
from shared.processes.children import MEMORY_BYTES, claim_stdout, die_with
from shared.shapes import Kind, PluginPin, State


def main(parent: int, kind: Kind, name: str, value: str) -> None:
    """Print the verdict as JSON, and end at once, even if the import has started threads."""
    die_with(parent)
    if kind is Kind.GRADER:  # it has no more where it marks
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    verdicts = claim_stdout()
    verdict = judge(kind, name, value)
    verdicts.write(msgspec.json.encode(verdict).decode("ascii", "backslashreplace"))
    verdicts.flush()
    os._exit(0)


def judge(kind: Kind, name: str, value: str) -> TrialResult:
    """Import the plug-in and check it: FAILED if the import raises, REFUSED if it starts a thread or a check fails."""
    before = threading.active_count()
    try:
        found = metadata.EntryPoint(name=name, value=value, group=kind.group).load()
    except BaseException as error:  # noqa: BLE001 - an import may raise anything, SystemExit among it
        return TrialResult(state=State.FAILED, detail=_describe_error(error))
    if threading.active_count() > before:
        return TrialResult(state=State.REFUSED, detail="its import starts a thread: start it when it is first used")
    try:
        return CHECKS[kind](name, found)
    except BaseException as error:  # noqa: BLE001 - the checked code is not ours
        return TrialResult(state=State.REFUSED, detail=_describe_error(error))


def _describe_error(error: BaseException) -> str:
    """Describe the error in one line, with the place where the plug-in raised it."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
    where = f" ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno})" if len(frames) > 1 else ""  # noqa: PTH119
    return f"{type(error).__name__}: {error}{where}".replace("\n", " ")


def _check_pipeline(name: str, found: Any) -> TrialResult:
    from shared.params import Params
    from shared.pipelines import registry
    from shared.runtime.price import MadeUpLibrary, dry_rounds, make_placeholder_job
    from shared.samples import Item

    pin = PluginPin(kind=Kind.PIPELINE, name=name, distribution="", version="", hash="")
    registry.adopt(registry.get_declared(name, found), pin, {}, dict)
    job, item = make_placeholder_job(name, Params()), Item(ordinal=0, question="?")
    replays = [job.start(item, 0, MadeUpLibrary())]
    if job.find_pipeline().prepare is not None:
        replays.insert(0, job.prepare([item], MadeUpLibrary()))
    for replay in replays:
        for _ in dry_rounds(job, replay):
            pass
        if replay.failure is not None and replay.failure[0] == "pipeline_error":
            last_line = replay.failure[1].strip().rpartition("\n")[2]
            return TrialResult(state=State.REFUSED, detail=f"a dry run of it fails: {last_line}")
    return TrialResult(state=State.READY)


def _check_grader(name: str, found: Any) -> TrialResult:
    from shared.rag.grading import EXTRACTS, Grader

    if not isinstance(found, Grader) or not callable(found.mark):
        raise TypeError("it is not a grader: make it a `shared.rag.grading.Grader` with a function that marks")
    if found.name != name:
        raise TypeError(f"its `name` is {found.name!r}, but its entry point is {name!r}: use one name")
    extract = next((word for word, each in EXTRACTS.items() if each is found.extract), None)
    if extract is None:
        shipped = f"one of {', '.join(EXTRACTS)} in `shared.rag.grading.EXTRACTS`"
        raise TypeError(f"its `extract` is its own function, which replays would run: use {shipped}")
    declares = {"extract": extract, "score": found.score, "most": found.most, "worded": found.worded}
    return TrialResult(state=State.READY, declares=declares)


def _check_metric(name: str, found: Any) -> TrialResult:
    from shared.params import MetricsParams, Params
    from shared.rag import answer_metrics
    from shared.runtime.price import MadeUpLibrary, dry_rounds, make_placeholder_item, make_placeholder_job

    if not isinstance(found, answer_metrics.Metric):
        raise TypeError(
            "it is not a metric: make it a `shared.rag.answer_metrics.Metric` with a function that measures"
        )
    if found.name != name:
        raise TypeError(f"its `name` is {found.name!r}, but its entry point is {name!r}: use one name")
    answer_metrics.adopt(found)
    job = make_placeholder_job("dense", Params(metrics=MetricsParams(names=(name,))))
    replay = job.start(make_placeholder_item(job.params), 0, MadeUpLibrary())
    for _ in dry_rounds(job, replay):
        pass
    if replay.failure is not None:
        last_line = replay.failure[1].strip().rpartition("\n")[2]
        return TrialResult(state=State.REFUSED, detail=f"a dry run of it fails: {last_line}")
    return TrialResult(state=State.READY)


def _check_callable(_name: str, found: Any) -> TrialResult:
    if not callable(found):
        raise TypeError(f"it must be a function or a class, not {type(found).__name__}")
    return TrialResult(state=State.READY)


CHECKS: Mapping[Kind, Callable[[str, Any], TrialResult]] = {
    **dict.fromkeys(Kind, _check_callable),
    Kind.GRADER: _check_grader,
    Kind.METRIC: _check_metric,
    Kind.PIPELINE: _check_pipeline,
}


if __name__ == "__main__":
    main(int(sys.argv[1]), Kind(sys.argv[2]), sys.argv[3], sys.argv[4])
