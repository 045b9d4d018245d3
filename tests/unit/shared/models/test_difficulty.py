"""The difficulty classifier: what the services compute is what was fitted, and is as good as its card says."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from scipy.stats import mannwhitneyu

from mathrag.errors import Unavailable
from shared.models.difficulty import DifficultyClassifier, Regression, read_regression
from shared.models.embedding import StaticEmbedder
from shared.runtime.pins import WEIGHTS
from shared.settings import EMBEDDINGS
from shared.statistics.agreement import compute_auroc
from tests.unit.datasets import DATA, needs
from tools.difficulty import figures
from tools.difficulty.figures import ClassifierEvaluation, MathProblem

EVALUATION = msgspec.json.decode((WEIGHTS.parent / "evaluation.json").read_bytes(), type=ClassifierEvaluation)
RECORDED = [each.question for each in EVALUATION.recorded]
TEST_DEV = DATA / "math" / "test-dev.jsonl"


@pytest.fixture(scope="module")
def classifier(embedder: StaticEmbedder) -> DifficultyClassifier:
    return DifficultyClassifier(read_regression(WEIGHTS), embedder)


def problem(number: int, level: int = 3, subject: str = "Algebra") -> MathProblem:
    return MathProblem(f"train/{number}.json", f"What is {number}?", subject, level)


def test_the_services_give_the_probabilities_of_the_library_that_fitted_them(classifier: DifficultyClassifier) -> None:
    expected = [each.probability for each in EVALUATION.recorded]
    assert len(expected) == 20
    assert classifier.probabilities(RECORDED) == pytest.approx(expected, abs=1e-6)


def test_a_probability_depends_on_nothing_but_the_question(classifier: DifficultyClassifier) -> None:
    together = classifier.probabilities(RECORDED * 20)
    assert together == [classifier.probabilities([text])[0] for text in RECORDED] * 20
    again = DifficultyClassifier(read_regression(WEIGHTS), StaticEmbedder(EMBEDDINGS))
    assert again.probabilities(RECORDED[::-1]) == together[: len(RECORDED)][::-1]


def test_weights_that_were_fitted_to_another_embedder_are_refused(embedder: StaticEmbedder) -> None:
    regression = msgspec.structs.replace(read_regression(WEIGHTS), embedder="0" * 64)
    with pytest.raises(Unavailable, match=r"fitted to embedder 000000000000…") as refusal:
        DifficultyClassifier(regression, embedder)
    assert refusal.value.hint == "Fit it again: `python -m tools.difficulty`"


@pytest.mark.parametrize("content", [None, b"{", b'{"embedder": "x", "bias": "much", "weights": []}'])
def test_weights_that_cannot_be_read_are_unavailable(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "weights.json").write_bytes(content)
    with pytest.raises(
        Unavailable, match=r"weights of the difficulty classifier cannot be read from '.*weights\.json': "
    ):
        read_regression(tmp_path / "weights.json")


@pytest.mark.parametrize("question", ["求 $x^2 = 4$ 的所有解。", "", "\u2603"])
def test_of_a_question_that_it_cannot_read_it_says_nothing(classifier: DifficultyClassifier, question: str) -> None:
    first, nothing, last = classifier.probabilities([RECORDED[0], question, RECORDED[1]])
    assert nothing is None
    assert [first, last] == classifier.probabilities(RECORDED[:2])


def test_no_questions_no_probabilities(classifier: DifficultyClassifier) -> None:
    assert classifier.probabilities([]) == []


def test_more_weight_means_harder(embedder: StaticEmbedder) -> None:
    vector = embedder.embed_queries(["prime"])[0]
    along = Regression(embedder=embedder.signature, bias=0.0, weights=tuple(map(float, vector)))
    against = msgspec.structs.replace(along, weights=tuple(map(float, -vector)))
    found = [DifficultyClassifier(each, embedder).probabilities(["prime"]) for each in (along, against)]
    assert found == [[pytest.approx(1 / (1 + np.exp(-1)), abs=1e-6)], [pytest.approx(1 / (1 + np.e), abs=1e-6)]]


def test_the_card_says_what_was_measured() -> None:
    assert (WEIGHTS.parent / "README.md").read_text("utf-8") == figures.render(EVALUATION)


@needs("math")
def test_the_shipped_classifier_is_as_good_as_its_card_says(classifier: DifficultyClassifier) -> None:
    part = figures.read_problems(TEST_DEV)
    found = classifier.probabilities([each.text for each in part])
    assert None not in found
    measured = figures.measure_figures(part, np.array(found, dtype=np.float64))
    written = EVALUATION.parts["test-dev"].shipped
    assert (measured.n, measured.accuracy, measured.cuts) == (written.n, written.accuracy, written.cuts)
    assert msgspec.structs.astuple(measured.auc) == pytest.approx(msgspec.structs.astuple(written.auc))
    assert measured.calibration_error == pytest.approx(written.calibration_error)
    assert measured.levels.keys() == written.levels.keys()
    for name, level in measured.levels.items():
        assert level == written.levels[name]


def test_it_beats_what_is_trivial_and_not_what_reads_words() -> None:
    for part in EVALUATION.parts.values():
        assert part.shipped.accuracy.low > part.shipped.hard
        assert part.rivals["length"].advantage.low > 0
        assert part.rivals["words (TF-IDF)"].advantage.high < 0
        assert part.rivals["embeddings and length"].advantage.high < 0


@needs("math")
def test_a_fifth_of_every_subject_and_level_is_held_out() -> None:
    everything = figures.read_problems(DATA / "math" / "train.jsonl")
    fitted, held_out = figures.split_problems(everything)
    assert len(everything) == 7498
    assert len(fitted) == EVALUATION.fitted
    assert not {each.id for each in fitted} & {each.id for each in held_out}
    total, held = (Counter((each.subject, each.level) for each in part) for part in (everything, held_out))
    assert all(abs(held[stratum] - count / 5) <= 0.5 for stratum, count in total.items())


def test_the_split_depends_on_the_problems_and_not_on_their_order() -> None:
    part = [problem(number, level=1 + number % 5) for number in range(100)]
    there, back = figures.split_problems(part), figures.split_problems(part[::-1])
    assert {each.id for each in there.held_out} == {each.id for each in back.held_out}
    assert len(there.held_out) == 20


def test_problems_without_a_level_are_left_out(tmp_path: Path) -> None:
    lines: list[dict[str, Any]] = [
        {"unique_id": str(number), "problem": "p", "subject": "s", "level": level}
        for number, level in enumerate(["Level 3", "Level ?", "Level 4"])
    ]
    file = tmp_path / "problems.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert [(each.id, each.level, each.hard) for each in figures.read_problems(file)] == [
        ("0", 3, False),
        ("2", 4, True),
    ]


def test_the_area_is_the_rank_sum_statistic_of_mann_and_whitney() -> None:
    rng = np.random.default_rng(1)
    hard, probabilities = rng.integers(0, 2, 200).astype(float), rng.integers(0, 20, 200) / 20
    expected = mannwhitneyu(probabilities[hard > 0], probabilities[hard == 0]).statistic / (
        hard.sum() * (1 - hard).sum()
    )
    found = figures.measure_area(hard, probabilities)
    assert found.value == pytest.approx(expected)
    assert found.low < expected < found.high
    assert compute_auroc(hard, hard) == 1
    assert compute_auroc(hard, np.zeros(200)) == 0.5


def test_an_advantage_is_of_the_same_problems() -> None:
    rng = np.random.default_rng(2)
    hard = rng.integers(0, 2, 200).astype(float)
    noise = rng.random(200)
    nothing, much = figures.measure_advantage(hard, noise, noise), figures.measure_advantage(hard, hard, noise)
    assert (nothing.value, nothing.low, nothing.high) == (0, 0, 0)
    assert much.value == pytest.approx(1 - compute_auroc(hard, noise))
    assert much.low > 0.3


def test_calibration_puts_problems_of_like_probability_together() -> None:
    hard = np.array([0.0, 1.0, 0.0, 1.0])
    bins = figures.measure_calibration(hard, np.array([0.01, 0.05, 0.55, 1.0]))
    assert [(each.n, each.hard.value) for each in bins] == [(2, 0.5), (1, 0.0), (1, 1.0)]
    assert bins[0].probability == pytest.approx(0.03)


def test_figures_say_what_a_threshold_would_do() -> None:
    part = [problem(number, level) for number, level in enumerate((1, 3, 4, 5) * 25)]
    found = figures.measure_figures(part, np.array([0.15, 0.35, 0.25, 0.95] * 25))
    cuts = {each.threshold: (each.easy.value, each.hard_among_easy.value) for each in found.cuts}
    assert (cuts[0.1], cuts[0.2], cuts[0.3], cuts[0.4]) == ((0, None), (0.25, 0), (0.5, 0.5), (0.75, 1 / 3))
    assert (found.n, found.hard, found.accuracy.value, found.auc.value) == (100, 0.5, 0.75, 0.75)
    assert {name: group.auc for name, group in found.levels.items()} == dict.fromkeys(
        ("Level 1", "Level 3", "Level 4", "Level 5")
    )
    assert found.brier == pytest.approx((0.15**2 + 0.35**2 + 0.75**2 + 0.05**2) / 4)
    assert found.calibration_error == pytest.approx((0.15 + 0.35 + 0.75 + 0.05) / 4)
