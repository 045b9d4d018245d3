"""What a reproduction begins with: presets and problems."""

import json
import math
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mathrag.errors import Invalid, MathragError, NotFound
from mathrag_gate.reproduction import preset as presets
from mathrag_gate.reproduction import problems, published
from shared.experiments import Experiment
from shared.params import Params
from shared.pipelines import registry
from shared.rag.fusion import rerank
from shared.samples import DatasetItem
from shared.settings import Settings
from tests.unit import datasets
from tests.unit.datasets import needs
from tests.unit.reproductions import EXPERIMENT, METHODS, problem, write, write_runs

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


def test_the_preset_of_the_authors_code_orders_by_quality_and_shows_three_documents() -> None:
    preset, paper = presets.load("paper-code"), presets.load("paper")
    params = msgspec.convert(preset.experiment["params"], Params)
    assert (params.context_size, params.duplicates) == (3, "same-text")
    assert (params.rated, params.rerank.floor) == (params.candidates, 0)  # quality alone: no relevance is asked for
    fused, quality = [("best", 0.9), ("rated higher", 0.1)], {"best": 0.5, "rated higher": 0.75}
    weights = {"rrf_weight": params.rrf_weight, "quality_weight": params.quality_weight}
    assert [each.document for each in rerank(fused, quality, **weights)] == ["rated higher", "best"]
    assert [each.document for each in rerank(fused, dict.fromkeys(quality, 0.5), **weights)] == ["best", "rated higher"]
    assert preset.configuration == paper.configuration


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
    assert "paper, paper-code, paper-tgi, small" in (refused.value.hint or "")


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
    with pytest.raises(Invalid, match="has only 10 questions") as refused:
        choose(data, 500)
    assert refused.value.hint == "use --items 10 or less"


def test_a_pointer_of_git_lfs_is_no_file(data: Path) -> None:
    (data / "test.jsonl").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    with pytest.raises(MathragError, match=r"test.jsonl.*git lfs pull"):
        choose(data)


def test_a_folder_without_the_files_says_what_is_looked_for(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"train\.jsonl") as refused:
        choose(tmp_path)
    assert "--corpus FILE" in (refused.value.hint or "")
    with pytest.raises(NotFound, match="no folder with problems is given"):
        problems.find(None, None, None)


@needs("math")
def test_math_itself_has_a_hundred_questions() -> None:
    assert len(choose(datasets.DATA / "math", 100)) == 100


# The page about the published runs: its figures were computed by hand.


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    write_runs(tmp_path)
    write(tmp_path / "train.jsonl", range(9))
    return tmp_path


def blocks(folder: Path) -> dict[str, str]:
    """The page where this service gives the authors' verdicts."""
    found = published.read(folder, folder / "train.jsonl", EXPERIMENT)
    samples: dict[published.Method, Any] = {method: {} for method in published.METHODS}
    for run in found.runs:
        key = found.items[run.item].unique_id, run.run - 1
        samples[run.method][key] = {"correct": run.published_correct, "gold": "4", "answer": "4"}
    methods = [
        {"method": name, "published": 0.75, "accuracy": {"value": None, "low": 0, "high": 1}, "theirs": None}
        for name in METHODS
    ]
    return published.make_blocks(found, methods, [{"words": "?"}] * 3, samples, "math")


@pytest.mark.parametrize(
    ("text", "number", "lost"),
    [
        (r"So \boxed{12}.", "12", ""),
        (r"\boxed{22,500}", "500", "last of 2 numbers in the box"),
        (r"\boxed{-12x - 3}", "3", "last of 2 numbers in the box"),
        (r"\boxed{\frac{7}{6}}", "7", "box cut at its first brace"),
        (r"\boxed{\text{A,B}} of 160.", "160.", "last number of the text, because the box has none"),
        (r"first \boxed{1}, then \boxed{2}", "1", ""),
        ("It is -0.5 or 3", "3", "no box"),
        ("It is five", "", "no box"),
    ],
)
def test_the_authors_number_is_the_last_one_of_the_first_box(text: str, number: str, lost: str) -> None:
    assert published.extract(text) == (number, lost)


def test_the_authors_rule_is_held_against_all_of_their_verdicts(runs: Path) -> None:
    assert "of 32 of 32 answers (2 experiments)" in blocks(runs)["authors"]
    file = runs / "runs.csv"
    file.write_text(file.read_text().replace("20251125_000000,1,dense,1,1,7,7,1", "20251125_000000,1,dense,1,1,7,7,0"))
    assert "of 31 of 32 answers (2 experiments)" in blocks(runs)["authors"]


def test_a_page_without_a_changed_verdict_says_so(runs: Path) -> None:
    found = blocks(runs)
    assert found["verdicts"] == "No verdict changed."
    assert "| dense | 75.0 ± 35.4 | 34.2 to 100.0 | - | None |" in found["table"]


def test_differences_are_the_methods_minus_the_gate(runs: Path) -> None:
    file = runs / "runs.csv"
    file.write_text(file.read_text().replace("2,mathrag-gate,2,3,7,7,1", "2,mathrag-gate,2,3,7,7,0"))
    said = "not separable at n = 2: +25.0 points (+0.0 to +50.0), +1 -0 of 2, p = 1.000"
    assert f"| dense | {said}" in blocks(runs)["differences"]


def test_rho_has_fishers_interval(runs: Path) -> None:
    pairs = zip((0.1, 0.2, 0.3, 0.4, 0.5), (0.8, 1, 0.8, 1, 1), strict=True)
    (runs / "gate-scores.csv").write_text("rule,judge\n" + "".join(f"{rule},{judge}\n" for rule, judge in pairs))
    low, high = (math.tanh(math.atanh(1 / math.sqrt(3)) + side * 1.959964 / math.sqrt(5 - 3)) for side in (-1, 1))
    said = blocks(runs)["gate"]
    assert "scores of 5 documents are 1 (3), 0.8 (2): the rating / 5" in said
    assert f"rho = 0.577 ({low:.4f} to {high:.3f})" in said
    assert "the interval lies on both sides of tau = 0.45" in said


def test_a_judge_that_gives_one_score_has_no_rho(runs: Path) -> None:
    (runs / "gate-scores.csv").write_text("rule,judge\n" + "0.1,1\n0.2,1\n" * 3)
    assert "rho is undefined: the judge gave every document 1" in blocks(runs)["gate"]


@pytest.mark.parametrize(
    ("best", "said"),
    [
        ("0.88", "p is 1.000 without any correction: no pair"),
        ("0.9", "p is 0.004 without any correction: the file does not"),
    ],
)
def test_weights_are_separable_only_if_no_split_of_the_questions_can_deny_it(runs: Path, best: str, said: str) -> None:
    worst = {"0.88": "0.86", "0.9": "0.72"}[best]
    (runs / "weights.csv").write_text(
        f"RRF_Weight,Quality_Weight,Accuracy,Recall\n0.1,0.9,{best},1\n0.9,0.1,{worst},1\n"
    )
    found = blocks(runs)["weights"]
    assert said in found
    if best == "0.9":
        assert "| 0.1 | 0.9 | 45 of 50 | 90.0 (78.6 to 95.7) |" in found


def test_seconds_have_their_median_and_95th_percentile(runs: Path) -> None:
    assert "| dense | 4 | 4.00 | 2.50 | 8.95 |" in blocks(runs)["latency"]


def test_recall_is_compared_with_documents_drawn_at_random(runs: Path) -> None:
    said = blocks(runs)["recall"]
    assert "dense 3 of 4, sparse 3 of 4, hybrid 3 of 4, gate 3 of 4" in said
    assert "in every run for 1 of 2 questions" in said
    # A 2 is in one of the other seven, a 4 in two: 1 - C(6, 5) / C(7, 5) = 15 / 21, and 1 - 1 / 21 = 20 / 21.
    assert "the other 7 of the training set satisfy it with a probability of 83.3 % on average" in said
    assert "at least 95 % for 1 questions" in said


def test_a_part_without_its_file_or_column_is_left_out(runs: Path) -> None:
    file = runs / "runs.csv"
    file.write_text(file.read_text().replace("latency_s", "a").replace("published_recall_at_5", "b"))
    found = blocks(runs)
    assert [found[name] for name in ("gate", "weights", "latency", "recall")] == [
        f"Left out: the folder has no `{what}`."
        for what in (
            "gate-scores.csv", "weights.csv", "latency_s` in `runs.csv", "published_recall_at_5` in `runs.csv",
        )
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("file", "row"),
    [("gate-scores.csv", "rule,judge\n0.1,5\n"), ("weights.csv", "RRF_Weight,Quality_Weight,Accuracy\n0.1,0.9,nan\n")],
)
def test_a_score_that_is_not_a_share_is_refused(runs: Path, file: str, row: str) -> None:
    (runs / file).write_text(row)
    with pytest.raises(Invalid, match=f"{file}, line 2"):
        blocks(runs)
