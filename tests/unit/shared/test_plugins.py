"""Plug-ins: found, tried in a process, and used, whether they are packages or files."""

from pathlib import Path

import pytest

from shared.pipelines import registry
from shared.plugins import loading
from shared.plugins.loading import LONGEST, TrialResult, find_in_folder
from shared.rag.answer_metrics import METRICS, get_metric, list_metrics
from shared.settings import Plugins
from shared.shapes import Kind, State
from tests import plugins
from tests.plugins import asking, measuring, restart

# Plug-ins are found, tried in a process, and used; whatever is wrong with one, the others go on.

HOSTILE = {
    "exits": "raise SystemExit(0)",
    "ends": "import os\nos._exit(3)",
    "stops": "class Stop(BaseException): pass\nraise Stop('no further')",
    "broken": "def run(:",
    "lacking": "import not_there",
    "threading": "import threading, time\nthreading.Thread(target=time.sleep, args=(600,)).start()\ndef run(): pass",
    "bare": "def run(sample, params, library):\n    yield",
    "other": asking("another-name"),
    "nonsense": asking("nonsense").replace("Generate(", "print("),
    "endless": asking("endless").replace("    return", "    while True:\n        yield []\n    return"),
}
SAID = {
    "exits": (State.FAILED, "SystemExit: 0 (__init__.py:1)"),
    "ends": (State.FAILED, "its import ended the process with status 3"),
    "stops": (State.FAILED, "Stop: no further (__init__.py:2)"),
    "broken": (State.FAILED, "SyntaxError: "),
    "lacking": (State.FAILED, "ModuleNotFoundError: No module named 'not_there'"),
    "threading": (State.REFUSED, "its import starts a thread: start it when it is first used"),
    "bare": (
        State.REFUSED,
        'TypeError: no pipeline found: decorate the generator function with `@pipeline("bare")`',
    ),
    "other": (
        State.REFUSED,
        "TypeError: its decorator says `@pipeline('another-name')`, but its entry point is 'other'",
    ),
    "nonsense": (State.REFUSED, "a dry run of it fails: TypeError: "),
    "endless": (State.REFUSED, "a dry run of it fails: shared.runtime.advance.TooManyCalls: "),
    "absent": (State.FAILED, "AttributeError: module 'plugin_absent' has no attribute 'nowhere'"),
    "dense": (State.SHIPPED, "pipeline 'dense' is shipped with this program: give the plug-in another name"),
    "Upper": (State.REFUSED, "'Upper' is not a valid name"),
    "twice": (State.DOUBLED, "named by mathrag-again 2.0 and by mathrag-twice 1.0: uninstall all but one"),
    "outside": (State.REFUSED, "outside its folder: copy the file into it"),
    "foreign": (State.REFUSED, "its module `shared` is"),
    "standard": (State.REFUSED, "`json`, which is a module of Python"),
    "sleeping": (State.TIMED_OUT, "its import took longer than 60 s (`plugins.import_s`)"),
}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> plugins.Site:
    return plugins.site(tmp_path, monkeypatch)


@pytest.fixture
def _untried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "_verdicts", {})
    monkeypatch.setattr(loading, "_try", lambda *_: TrialResult(state=State.READY))


@pytest.mark.slow
def test_each_defect_is_a_state_of_its_own_and_stops_no_other_plugin(
    site: plugins.Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, source in HOSTILE.items():
        site.install(name, source)
    for name in ("dense", "Upper", "twice", "well"):
        site.install(name)
    site.install("sleeping", "import time\ntime.sleep(600)")
    site.install("twice", distribution="mathrag-again", version="2.0")
    site.install("absent", value="plugin_absent:nowhere")
    site.install("foreign", value="shared.pipelines.dense:dense")
    site.install("standard", value="json:loads")
    (site.install("outside") / "data").symlink_to("/etc")
    found = restart(monkeypatch, Plugins(import_s=60.0))
    said = {name: (each.state, each.detail) for name, each in found.items() if name != "well"}
    assert {name: state for name, (state, _) in said.items()} == {name: state for name, (state, _) in SAID.items()}
    assert not [(detail, SAID[name][1]) for name, (_, detail) in said.items() if SAID[name][1] not in detail]
    assert found["well"].state is State.READY
    assert registry.get("well").plugin == found["well"].pin
    assert set(found) - {"dense"} & set(registry.names()) == {"well"}
    assert registry.get("dense").plugin is None


VALUE = "return {'%s': MetricScore(value=1.0)}"
BAD_METRICS = {
    "bare": ("run = print", "TypeError: it is not a metric: make it a `shared.rag.answer_metrics.Metric`"),
    "other": (
        measuring("another", VALUE % "another"),
        "TypeError: its `name` is 'another', but its entry point is 'other'",
    ),
    "silent": (measuring("silent", "pass"), "a dry run of it fails: TypeError: metric 'silent' has to return"),
    "declined": (measuring("declined", VALUE % "declined"), "another metric already gives the score 'declined'"),
    "too-much": (
        measuring("too-much", "return {'too-much': MetricScore(value=2.0)}"),
        "the value of a metric must be from 0 to 1",
    ),
}


@pytest.mark.slow
def test_metrics_of_plugins_are_known_by_name_and_bad_ones_are_refused(
    site: plugins.Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, (source, _) in BAD_METRICS.items():
        site.install(name, source, kind="metric")
    asks = "[reply] = yield [ask_addresses(answer)]; " + VALUE % "on-topic"
    site.install("on-topic", measuring("on-topic", asks), kind="metric")
    found = restart(monkeypatch, Plugins(import_s=60.0))
    assert {name: found[name].state for name in BAD_METRICS} == dict.fromkeys(BAD_METRICS, State.REFUSED)
    assert not [(found[name].detail, said) for name, (_, said) in BAD_METRICS.items() if said not in found[name].detail]
    assert get_metric("on-topic").plugin == found["on-topic"].pin
    assert {*list_metrics()} - {*METRICS} == {"on-topic"}


@pytest.mark.usefixtures("_untried")
def test_a_pipelines_hash_is_of_its_plugins_files_and_of_what_these_import(
    site: plugins.Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = site.install("well")
    restart(monkeypatch)
    first = registry.pipeline_hash("well")
    (package / "words.csv").write_text("a,b\n")
    assert [change.file for change in registry.list_changed_files("well")] == ["plugin_well/words.csv"]
    assert registry.pipeline_hash("well") == first
    restart(monkeypatch)
    assert registry.pipeline_hash("well") != first
    assert registry.list_changed_files("well") == []


@pytest.mark.usefixtures("_untried")
def test_what_was_installed_changed_or_uninstalled_after_the_start_is_said(
    site: plugins.Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("changed", "gone"):
        site.install(name)
    restart(monkeypatch)
    site.install("changed", version="1.1")
    site.install("late")
    site.uninstall("mathrag-gone")
    states = {
        each.name: (each.state, each.detail.partition(",")[0])
        for each in loading.list_present(Plugins(import_s=plugins.LIMIT_S))
    }
    assert states == {
        "changed": (State.CHANGED, "the service has imported pipeline changed (mathrag-changed 1.0"),
        "gone": (State.CHANGED, "it was uninstalled"),
        "late": (State.CHANGED, "it was installed after the service had started"),
    }


def test_an_unreadable_distribution_hides_no_other(site: plugins.Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.install("well")
    folder = site.folder / "nameless-1.dist-info"
    folder.mkdir()
    (folder / "entry_points.txt").write_text("[mathrag.pipelines]\nx =\n")
    found = restart(monkeypatch)
    assert found["well"].state is State.READY
    assert (found["x"].state, found["x"].distribution) == (State.REFUSED, "nameless")


# Prompts and rubrics are files of folders that the configuration names: what is wrong with one is its state.

PROMPT = 'id = "{name}"\nversion = 1\nrequired = ["question"]\noptional = ["context"]\ntext = "{{{{context}}}}{text}"\n'


def prompt(name: str, text: str = "Q: {{question}}") -> str:
    return PROMPT.format(name=name, text=text)


BAD_PROMPTS = {
    "unknown": (prompt("unknown", "{{question}} {{answr}}"), "its text uses ['answr', 'context', 'question']"),
    "other": (prompt("another"), "says `id = 'another'`: the id must be the file's name, 'other'"),
    "binary": (b"\xff\xfe\x00", "is not UTF-8: save it as UTF-8"),
    "huge": (b"#" * (LONGEST + 1), "has more than 65536 bytes: shorten it"),
    "broken": ("id = ", "is not a template: "),
    "odd": (prompt("odd") + 'colour = "red"\n', "unknown field `colour`"),
    "Upper": (prompt("Upper"), "its name is not valid"),
}


@pytest.mark.parametrize("name", BAD_PROMPTS)
def test_a_prompt_that_is_none_is_refused_in_words_and_hides_no_other(tmp_path: Path, name: str) -> None:
    content, said = BAD_PROMPTS[name]
    (tmp_path / f"{name}.toml").write_bytes(content if isinstance(content, bytes) else content.encode())
    (tmp_path / "well.toml").write_text(prompt("well"))
    found = {each.name: each for each in find_in_folder(Kind.TEMPLATE, tmp_path, ["cot"])}
    assert found["well"].state is State.READY
    assert found[name].state is State.REFUSED
    assert said in found[name].detail
    assert str(tmp_path / f"{name}.toml") in found[name].detail


def test_a_file_that_leads_out_of_its_folder_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "prompts"
    folder.mkdir()
    (tmp_path / "secret.txt").write_text("do not tell")
    (folder / "away.txt").symlink_to("../secret.txt")
    (folder / "gone.txt").symlink_to("nowhere")
    (folder / "real.txt").write_text("right")
    (folder / "same.txt").symlink_to("real.txt")
    (folder / "deep.txt").mkdir()
    found = {each.name: (each.state, each.detail) for each in find_in_folder(Kind.RUBRIC, folder, ())}
    assert {name for name, (state, _) in found.items() if state is State.READY} == {"real", "same"}
    assert "outside its folder: copy the file into it" in found["away"][1]
    assert "do not tell" not in str(found)


def test_a_shipped_name_and_a_folder_that_is_not_there_are_said(tmp_path: Path) -> None:
    (tmp_path / "cot.toml").write_text(prompt("cot"))
    [taken] = find_in_folder(Kind.TEMPLATE, tmp_path, ["cot"])
    assert taken.state is State.SHIPPED
    [gone] = find_in_folder(Kind.TEMPLATE, tmp_path / "gone", [])
    assert (gone.state, "correct `plugins.templates` in mathrag.yaml" in gone.detail) == (State.REFUSED, True)
    assert find_in_folder(Kind.TEMPLATE, None, []) == []
