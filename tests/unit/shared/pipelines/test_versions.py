"""A pipeline's version stands for what it asks and answers; whoever edited its source is told."""

import json
import math
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mathrag.cli.output import Exit
from services.orchestrator.reports.warnings import list_edit_warnings
from shared import canonical
from shared.calls import (
    Call,
    Converse,
    Decoding,
    Embed,
    Estimate,
    Execute,
    FindRules,
    Generate,
    Grade,
    Judge,
    Mine,
    Rerank,
    Retrieve,
    Verify,
    Write,
)
from shared.params import Params
from shared.pipelines import registry
from shared.pipelines.binding import SampleBinder
from shared.pipelines.source import Change, list_changes
from shared.rag.answer_metrics import METRICS, METRICS_VERSION
from shared.rag.prompts import LABELS
from shared.rag.self_rag import RETRIEVAL
from shared.replies import (
    Atom,
    Document,
    Embedded,
    Estimated,
    Executed,
    Failure,
    FailureKind,
    FoundRules,
    Generated,
    Graded,
    Hit,
    Mined,
    NumberedRule,
    Rated,
    Relevance,
    Reply,
    Retrieved,
    Rule,
    Scored,
    Token,
    Verified,
)
from shared.runtime.advance import JobSpec, Replay
from shared.runtime.price import make_placeholder_job
from shared.samples import Control, Item
from shared.settings import REPOSITORY
from tests import golden
from tests.unit.commands import Server, job, mathrag, says
from tests.unit.shared.pipelines.test_pipeline_reads import VARIANTS

# A pipeline's version stands for what it asks and answers, which is recorded.

DOCUMENTS = [
    Document(
        problem=f"What is {n} times {n}?" if n % 3 else "",
        text=f"Step 1. Since x = {n}, x * x = {n * n}. " + "So we go on. " * (n % 4) + rf"Therefore \boxed{{{n * n}}}.",
    )
    for n in range(60)
]
LIBRARY = {document.hash: document for document in DOCUMENTS}
ITEMS = [
    Item(ordinal=0, question="What is the sum of 2 and 3?", gold="5"),
    Item(ordinal=1, question="2 加 3 等于多少？", gold="5"),
]
MOST_ROUNDS = 30


class FirstJudge(msgspec.Struct, kw_only=True, tag="judge"):
    """`Judge` with the fields that it had when the first plays were recorded: made-up replies follow from them."""

    rubric: str
    document: str
    question: str | None
    slots: dict[str, str]
    decoding: Decoding | None
    draw: int


class SecondJudge(FirstJudge, kw_only=True, tag="judge"):
    """The same with the field that it had next, for calls that use it."""

    logprobs: int


class FirstRetrieve(msgspec.Struct, kw_only=True, tag="retrieve"):
    """`Retrieve` with the fields that it had when the plays were recorded."""

    question: str
    index: str
    k: int
    skip: int
    hypothetical: tuple[str, ...]
    duplicates: str
    item: str
    gold: str


def strip_later_fields(call: Call) -> Any:
    match call:
        case Judge():
            return msgspec.convert(call, SecondJudge if call.logprobs else FirstJudge, from_attributes=True)
        case Retrieve():
            return msgspec.convert(call, FirstRetrieve, from_attributes=True)
        case _:
            return call


def reply(call: Call) -> Reply:
    number = int.from_bytes(canonical.digest(strip_later_fields(call))[:4])
    match call:
        case Retrieve():
            chosen = [DOCUMENTS[(number + 7 * step) % 60] for step in range(call.skip, call.skip + call.k)]
            return Retrieved(
                hits=tuple(
                    Hit(document=each.hash, rank=rank, score=1 / rank)
                    for rank, each in enumerate(chosen, call.skip + 1)
                )
            )
        case Rerank():
            return Scored(scores=tuple((number + place) % 10 / 10 for place in range(len(call.documents))))
        case Judge() if call.logprobs:
            return Relevance(probability=number % 10 / 10, text="yes")
        case Judge():
            return Rated(rating=number % 5 + 1, text=f"[[{number % 5 + 1}]]")
        case Generate() if call.logprobs:
            return reflect(number)
        case Generate() | Converse():
            as_program = isinstance(call, Generate) and call.template.startswith("program")
            text = f"```python\nanswer = {number % 7}\n```" if as_program else rf"So \boxed{{{number % 7}}}."
            return Generated(text=text if number % 5 else "I cannot say.", truncated=False)
        case Write():
            return Generated(text="\n".join(f"What is {number % 20 + line} plus {line}?" for line in range(3)))
        case _:
            return measure(call, number)


def reflect(number: int) -> Generated:
    """What a Self-RAG model writes that wants passages."""
    likely = math.log(0.5 + number % 100 / 200)
    said = [(RETRIEVAL, "[No Retrieval]"), ("[Relevant]", "[Irrelevant]"), ("[Utility:5]", "[Utility:1]")]
    tokens = tuple(Token(text=yes, logprob=likely, top={yes: likely, no: math.log(0.25)}) for yes, no in said)
    return Generated(text=rf"So \boxed{{{number % 7}}}.[Utility:5]", tokens=tokens)


def measure(call: Embed | Verify | Execute | Estimate | FindRules | Mine | Grade, number: int) -> Reply:
    match call:
        case Embed():
            return Embedded(vector=b"")
        case Verify():
            return Verified(verified=number % 5, refuted=number % 3, unknown=number % 2)
        case Execute():
            return Executed(output=str(number % 7)) if number % 3 else Failure(kind=FailureKind.PROGRAM_TIMEOUT)
        case Estimate():
            return Estimated(probability=number % 10 / 10)
        case FindRules():
            rule = Rule(head=Atom("r", 0, 1), body=(Atom("b", 0, 1),), support=1, body_size=2, confidence=0.5)
            return FoundRules(relation="r", rules=(NumberedRule(number % 10, rule),))
        case Mine():
            return Mined(rules=())
        case Grade():
            return Graded(math_verify=number % 2 == 0, strict=False)


def play(job: JobSpec, replay: Replay[Any], answer: Callable[[Call], Reply] = reply) -> Iterator[str]:
    """Answer a replay to its end; one line for the requests of each round, and one for how it ends."""
    binder = SampleBinder(job.binding, 0)
    while replay.calls and replay.position < MOST_ROUNDS:
        requests = list(binder.bind(replay.calls))
        roles = ", ".join(dict.fromkeys(each.role for each in requests))
        yield f"{roles} x {len(requests)}: {canonical.digest([each.body.decode() for each in requests]).hex()[:12]}"
        replay.answer([answer(call) for call in replay.calls])
    if replay.failure:
        yield f"failure {replay.failure[0]}"
    elif replay.result is not None:
        yield f"result {canonical.digest(rounded(msgspec.to_builtins(replay.result))).hex()[:12]}"


def rounded(value: Any) -> Any:
    """Processors differ in the last digits of a correlation."""
    match value:
        case float():
            return float(f"{value:.6g}")
        case dict():
            return {key: rounded(each) for key, each in value.items()}
        case list() | tuple():
            return [rounded(each) for each in value]
        case _:
            return value


def play_job(name: str, params: Params) -> Iterator[str]:
    job = make_placeholder_job(name, params)
    if job.find_pipeline().prepare is not None:
        prepared = job.prepare(ITEMS * 20, LIBRARY)
        yield from play(job, prepared)
        job = msgspec.structs.replace(job, prepared=prepared.result)
    for item in ITEMS:
        yield from play(job, job.start(item, 0, LIBRARY))


def record(name: str) -> dict[str, Any]:
    plays: dict[str, list[str]] = {}
    for variant in VARIANTS:
        lines = list(play_job(name, msgspec.convert(variant, Params)))
        if lines not in plays.values():
            plays[json.dumps(variant)] = lines
    return {"version": registry.get(name).version, "plays": plays}


def test_each_pipeline_asks_and_answers_what_its_version_did() -> None:
    found = {name: record(name) for name in registry.list_offered()}
    recorded = json.loads((golden.FOLDER / "pipelines.json").read_text("utf-8"))
    same_version = {name for name, each in recorded.items() if each["version"] == registry.get(name).version}
    changed = sorted(name for name in same_version if found[name]["plays"] != recorded[name]["plays"])
    assert not changed, f"raise the version, `@pipeline(name, version=…)`, of {', '.join(changed)}"
    golden.compare("pipelines.json", json.dumps(found, indent=1) + "\n")


UNPARSED = Failure(kind=FailureKind.UNPARSED, detail="")


def measured_reply(call: Call) -> Reply:
    if isinstance(call, Generate):
        return Generated(text="## Sum\nIt is 5 [1]. So 2 + 3 = 5 [1][2]. Is it? 答案是5。[2]")
    if isinstance(call, Judge) and call.rubric in LABELS:
        number = int.from_bytes(canonical.digest(call)[:4])
        return Rated(rating=number % LABELS[call.rubric] + 1, text="") if number % 7 else UNPARSED
    if isinstance(call, Write):
        return Generated(text="1. It is 5.\n2. The sum of 2 and 3 is 5.")
    return reply(call)


def play_metrics(unit: str) -> Iterator[str]:
    metrics = {"names": list(METRICS), "unit": unit}
    job = make_placeholder_job("dense", msgspec.convert({"metrics": metrics, "context_size": 3}, Params))
    control = Control(question="What is 1 + 1?", documents=tuple(each.hash for each in DOCUMENTS[:5]))
    for item in ITEMS:
        for controls in ({}, {item.ordinal: control}):
            replay = msgspec.structs.replace(job, controls=controls).start(item, 0, LIBRARY)
            yield from play(job, replay, measured_reply)


def test_metrics_ask_and_score_what_their_version_did() -> None:
    found = {"version": METRICS_VERSION, "plays": {unit: list(play_metrics(unit)) for unit in ("sentences", "claims")}}
    assert all("result" in " ".join(lines) and "failure" not in " ".join(lines) for lines in found["plays"].values())
    file = golden.FOLDER / "metrics.json"
    recorded = json.loads(file.read_text("utf-8")) if file.exists() else found
    same = recorded["version"] != METRICS_VERSION or recorded["plays"] == found["plays"]
    assert same, "raise `METRICS_VERSION` in shared/rag/answer_metrics.py"
    golden.compare("metrics.json", json.dumps(found, indent=1) + "\n")


@pytest.mark.parametrize("name", registry.list_offered())
def test_the_recorded_plays_of_a_pipeline_end_with_results(name: str) -> None:
    lines = list(play_job(name, Params()))
    assert lines[-1].startswith("result")
    assert len(lines) >= 2 * len(ITEMS)


# Which source files were edited after a process had imported them, and who is told.

OWN, RAG, TEMPLATE = "shared/pipelines/dense.py", "shared/rag/fusion.py", "shared/rag/templates/cot-zh.toml"
EDIT = """
import json, sys
from pathlib import Path
import shared.pipelines.registry as registry
assert Path(registry.__file__).is_relative_to(Path.cwd()), registry.__file__

def look():
    return {
        "source": registry.source_hash(),
        "dense": registry.pipeline_hash("dense"),
        "changed": [change.file for change in registry.list_changed_files("dense")],
    }

print(json.dumps(look()))
for file in sys.argv[1:]:
    Path(file).write_text(Path(file).read_text() + chr(10) + "# edited" + chr(10))
print(json.dumps(look()))
"""


def edit_in_a_process(folder: Path, *files: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-c", EDIT, *files]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_process_names_the_files_that_were_edited_and_the_next_process_has_another_source(tmp_path: Path) -> None:
    shutil.copytree(REPOSITORY / "shared", tmp_path / "shared", ignore=shutil.ignore_patterns("__pycache__"))
    before, after = edit_in_a_process(tmp_path, OWN, RAG, TEMPLATE)
    assert before == {"source": registry.source_hash(), "dense": registry.pipeline_hash("dense"), "changed": []}
    assert after == {**before, "changed": [OWN, RAG, TEMPLATE]}
    restarted, _ = edit_in_a_process(tmp_path)
    assert restarted["source"] != before["source"]
    assert restarted == {**before, "source": restarted["source"]}


def test_the_hash_of_a_pipeline_is_that_of_its_name_and_version(monkeypatch: pytest.MonkeyPatch) -> None:
    dense, hybrid = registry.pipeline_hash("dense"), registry.pipeline_hash("hybrid")
    assert dense != hybrid
    later = registry.get("dense")._replace(version=registry.get("dense").version + 1)
    monkeypatch.setattr(registry, "get", lambda _: later)
    assert registry.pipeline_hash("dense") not in (dense, hybrid)


def test_files_that_came_and_went_are_changes_too() -> None:
    found = list_changes({"a.py": "1", "b.py": "2", "c.py": "3"}, {"b.py": "2", "c.py": "4", "d.py": "5"})
    assert [(each.file, each.imported is None, each.on_disk is None) for each in found] == [
        ("a.py", False, True), ("c.py", False, False), ("d.py", True, False),
    ]  # fmt: skip
    assert found[1].imported != found[1].on_disk


CHANGE = Change(file=OWN, imported="a" * 64, on_disk="b" * 64)


def test_a_warning_names_the_file_both_hashes_and_the_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "list_changed_files", lambda _: [CHANGE])
    (warning,) = list_edit_warnings(["dense", "hybrid"])
    assert all(word in warning for word in (OWN, "a" * 12, "b" * 12, "restart the service"))
    monkeypatch.setattr(registry, "list_changed_files", lambda _: [])
    assert list_edit_warnings(["dense"]) == []


def test_submit_prints_the_services_warnings_on_standard_error(server: Server) -> None:
    server(says({**job("running"), "warnings": [f"{OWN} was edited"]}, 202))
    arguments = ("job", "submit", "--name", "n", "--dataset", "d", "--pipeline", "dense", "--json")
    ended = mathrag(*arguments)
    assert ended.stderr == f"warning: {OWN} was edited\n"
    assert msgspec.json.decode(ended.stdout)["state"] == "running"


def test_the_list_of_pipelines_says_which_file_wants_a_restart(server: Server) -> None:
    shown: dict[str, Any] = {
        "name": "dense",
        "hash": "c" * 64,
        "summary": "s",
        "changed": [msgspec.to_builtins(CHANGE)],
    }
    server(says([shown]))
    ended = mathrag("pipeline", "list")
    assert (ended.exit_code, f"{OWN} was edited" in ended.stdout) == (Exit.DONE, True)
