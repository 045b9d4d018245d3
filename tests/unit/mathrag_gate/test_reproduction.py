"""What a reproduction begins with: presets and problems."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mathrag.errors import Invalid, MathragError, NotFound
from mathrag_gate.reproduction import preset as presets
from mathrag_gate.reproduction import problems
from shared.experiments import Experiment
from shared.params import Params
from shared.pipelines import registry
from shared.samples import DatasetItem
from shared.settings import Settings
from tests.unit import datasets
from tests.unit.datasets import needs
from tests.unit.reproductions import problem, write

# The presets: what is committed is what the paper says, and what a person changes is what changes.

DATA = Path("data")
NAMED: dict[str, Any] = {"name": "x", "datasets": [{"dataset": "d", "corpus": "c"}]}


def varied(name: str = "paper", **changes: Any) -> dict[str, Any]:
    preset = presets.load(name)
    preset.vary(**changes)
    return preset.experiment


def settings(name: str = "paper", **changes: Any) -> Settings:
    preset = presets.load(name)
    preset.configure(DATA, **changes)
    return Settings(**preset.configuration)


@pytest.mark.parametrize("name", presets.list_names())
def test_a_committed_preset_is_a_configuration_and_an_experiment(name: str) -> None:
    configured = settings(name)
    assert set(configured.roles.values()) <= set(configured.models)
    asked = Experiment.model_validate({**NAMED, **varied(name)})
    assert [variant.name for variant in asked.variants] == ["dense", "sparse", "hybrid", "gate"]
    assert all(registry.get(variant.pipeline) for variant in asked.variants)


@pytest.mark.parametrize("name", ["paper", "paper-tgi"])
def test_the_papers_presets_say_what_the_paper_says(name: str) -> None:
    experiment = presets.load(name).experiment
    params = msgspec.convert(experiment["params"], Params)
    assert (params.context_size, params.candidates) == (5, 10)
    assert (params.rrf_weight, params.quality_weight) == (0.1, 0.9)
    assert params.gate.tau == 0.45
    assert (params.judge.temperature, params.judge.max_tokens) == (0.1, 10)
    assert experiment["repeats"] == 5


def test_answers_and_ratings_are_drawn_anew_where_a_person_says_so() -> None:
    both = msgspec.convert(varied(sampled=True, redraw_judge=True)["params"], Params)
    assert (both.generate.temperature, both.judge.per_repeat) == (0.7, True)
    greedy = msgspec.convert(varied(redraw_judge=True)["params"], Params)
    assert (greedy.generate.temperature, greedy.judge.temperature, greedy.judge.per_repeat) == (0.0, 0.1, True)


def test_the_papers_models_are_one_at_a_time_on_a_12_gb_card() -> None:
    configured = settings()
    tags = {role: configured.models[name].tag for role, name in configured.roles.items()}
    assert tags == {"judge": "qwen2.5:0.5b-instruct", "generate": "qwen2.5:7b-instruct-q4_K_M"}
    assert configured.device.residency == "staged"
    assert configured.device.budget_mib <= 12 * 1024 - configured.device.reserve_mib


def test_the_embedders_file_is_looked_for_beside_the_problems() -> None:
    beside = settings().retrieval.embeddings
    assert beside.path == DATA.absolute() / "bge-small-en-v1.5-f16.gguf"
    assert beside.query_prefix.startswith("Represent this sentence")
    other = settings(embedder="other.gguf").retrieval.embeddings
    assert (other.kind, other.path) == ("gguf", Path("other.gguf").absolute())


def test_an_embedder_may_be_a_server_or_the_shipped_one() -> None:
    served = settings(embedder="http://127.0.0.1:8081").retrieval.embeddings
    assert (served.kind, served.url, served.too_long) == ("openai", "http://127.0.0.1:8081", "cut")
    assert served.query_prefix
    assert settings(embedder="shipped").retrieval.embeddings.kind == "static"


def test_server_device_budget_and_slots_are_the_persons() -> None:
    configured = settings(server="http://gpu:11434", device="GPU-1", budget_mib=8000, slots=2)
    assert {model.url for model in configured.models.values()} == {"http://gpu:11434"}
    assert {model.parallel for model in configured.models.values()} == {2}
    assert (configured.device.id, configured.device.budget_mib) == ("GPU-1", 8000)
    assert configured.device.load_timeout_s == 300


def test_sampling_changes_the_generators_temperature_alone() -> None:
    greedy, sampled = (varied(sampled=each)["params"]["generate"] for each in (False, True))
    assert greedy == {"temperature": 0.0, "max_tokens": 1024}
    assert sampled == {"temperature": presets.SAMPLED_TEMPERATURE, "max_tokens": 1024}


def test_repeats_are_the_persons_or_the_presets() -> None:
    assert [varied(repeats=each)["repeats"] for each in (None, 1)] == [5, 1]


def test_the_grid_of_weights_is_the_gates_alone_and_runs_once() -> None:
    asked = Experiment.model_validate({**NAMED, **presets.load("paper").make_heatmap()})
    assert [variant.pipeline for variant in asked.variants] == ["mathrag-gate"]
    assert asked.repeats == 1
    assert {path: len(values) for path, values in asked.grid.items()} == {"rrf_weight": 11, "quality_weight": 11}
    assert asked.grid["rrf_weight"][3] == 0.3


def test_a_preset_of_ones_own_is_a_file(tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(presets.read_text("small").replace("items: 100", "items: 7"))
    assert presets.load(str(file)).items == 7


def test_a_preset_that_is_not_there_is_said_with_those_that_are() -> None:
    with pytest.raises(NotFound) as refused:
        presets.load("papper")
    assert "paper, paper-tgi, small" in (refused.value.hint or "")


def test_a_preset_that_is_wrong_is_refused_before_anything_runs(tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(presets.read_text("small").replace("items: 100", "items: many"))
    with pytest.raises(Invalid, match=r"own.yaml.*items"):
        presets.load(str(file))


def test_a_preset_without_a_gate_has_no_grid_of_weights() -> None:
    preset = presets.load("small")
    preset.experiment["variants"] = [{"name": "dense", "pipeline": "dense"}]
    with pytest.raises(Invalid, match="--heatmap"):
        preset.make_heatmap()


# The problems of a reproduction: found by name, drawn with every subject's share.


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write(tmp_path / "train.jsonl", range(20))
    write(tmp_path / "test.jsonl", range(100, 110))
    return tmp_path


def choose(data: Path, count: int = 10) -> list[DatasetItem]:
    return problems.choose(problems.find(data, None, None)[1], count)


def test_both_files_are_found_by_their_usual_names(data: Path) -> None:
    assert problems.find(data, None, None) == (data / "train.jsonl", data / "test.jsonl")
    first, *_ = found = choose(data)
    assert (len(found), first.question, first.gold, first.subject) == (10, "What is 100 + 100?", "200", "Algebra")


def test_the_folders_of_the_original_archive_are_found_too(tmp_path: Path) -> None:
    for part, numbers in (("train", range(4)), ("test", range(100, 103))):
        for number in numbers:
            file = tmp_path / part / "algebra" / f"{number}.json"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(problem(number)))
    assert problems.find(tmp_path, None, None)[0] == tmp_path / "train"
    assert len(choose(tmp_path, 3)) == 3


def test_a_file_that_is_named_goes_before_the_folders(data: Path) -> None:
    other = write(data / "other.jsonl", range(200, 203))
    assert problems.find(data, None, other) == (data / "train.jsonl", other)
    assert problems.find(None, other, data / "test.jsonl") == (other, data / "test.jsonl")


def test_a_part_has_every_subjects_share_and_is_the_same_again(data: Path) -> None:
    assert sorted(str(item.subject) for item in choose(data, 4)) == ["Algebra", "Algebra", "Geometry", "Geometry"]
    assert choose(data, 4) == choose(data, 4)


def test_questions_without_answers_cannot_be_graded(data: Path) -> None:
    (data / "test.jsonl").write_text('{"problem": "?", "answer": "1"}\n{"problem": "Why?"}\n')
    with pytest.raises(Invalid, match="1 of its 2 questions have no gold answer"):
        choose(data, 2)


def test_more_questions_than_there_are_is_refused_with_how_many_there_are(data: Path) -> None:
    with pytest.raises(Invalid, match="holds 10 questions") as refused:
        choose(data, 500)
    assert refused.value.hint == "--items 10"


def test_a_pointer_of_git_lfs_is_no_file(data: Path) -> None:
    (data / "test.jsonl").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    with pytest.raises(MathragError, match=r"test.jsonl.*git lfs pull"):
        choose(data)


def test_a_folder_without_the_files_says_what_is_looked_for(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"train\.jsonl") as refused:
        choose(tmp_path)
    assert "--corpus PATH" in (refused.value.hint or "")
    with pytest.raises(NotFound, match="no folder with problems is given"):
        problems.find(None, None, None)


@needs("math")
def test_math_itself_has_a_hundred_questions() -> None:
    assert len(choose(datasets.DATA / "math", 100)) == 100
