"""The confidence of simple rules over recency and frequency."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.rules.simple.curve import Curves, fit, value
from shared.rules.simple.tally import Tally


def tally(*rows: tuple[int, int, int, int, int]) -> Tally:
    return Tally(*np.array(rows, np.int64).T)


def at(curves: Curves, distance: int, often: int) -> float:
    (confidence,) = value(curves, np.array([distance]), np.array([often]))
    return float(confidence)


def curve(*coefficients: float) -> Curves:
    return Curves(*(np.array([part], float) for part in coefficients))


def test_recency_falls_towards_its_offset() -> None:
    falling = curve(1, 0.5, 1, 0, 0, 0, 10)
    assert [at(falling, distance, 1) for distance in (1, 2, 10**18)] == pytest.approx([0.5, 0.375, 0.25])


def test_frequency_adds_its_share_of_the_window() -> None:
    assert at(curve(0, 0.1, 0, 0.4, 0.3, 1, 10), 2, 5) == pytest.approx(0.1 + 0.2 + 0.15)


def test_what_frequency_adds_or_takes_is_bounded_by_gamma() -> None:
    assert at(curve(0, 0.5, 0, 5, 0, 0.2, 10), 1, 10) == pytest.approx(0.7)
    assert at(curve(0, 0.5, 0, -5, 0, 0.2, 10), 1, 10) == pytest.approx(0.3)


def test_a_body_outside_of_the_window_counts_by_recency_alone() -> None:
    assert at(curve(0, 0.5, 0, 1, 1, 1, 10), 11, 0) == pytest.approx(0.5)


def test_a_confidence_stays_between_0_and_1() -> None:
    assert at(curve(0, 0.9, 0, 5, 0, 1, 10), 1, 10) == 1
    assert at(curve(0, 0.1, 0, -5, 0, 1, 10), 1, 10) == 0


def test_confidences_that_halve_give_decay_1() -> None:
    halving = fit(tally((0, 1, 1, 970, 800), (0, 2, 1, 970, 400), (0, 3, 1, 970, 200)), 1, window=50, unseen=30)
    assert (halving.decay, halving.alpha, halving.phi) == pytest.approx((1, 0.8, 0))
    assert at(halving, 2, 1) == pytest.approx(0.4)


def test_an_offset_is_found_beside_the_decay() -> None:
    rows = [(0, distance, 1, 1000, right) for distance, right in enumerate((600, 400, 300, 250), start=1)]
    found = fit(tally(*rows), 1, window=50, unseen=0)
    assert (found.decay, found.alpha, found.phi) == pytest.approx((1, 0.6, 0.5))


def test_a_rule_that_was_never_seen_a_step_later_keeps_its_mean() -> None:
    constant = fit(tally((0, 2, 1, 50, 10), (0, 3, 2, 50, 30)), 1, window=50, unseen=0)
    assert [float(part[0]) for part in constant] == pytest.approx([0, 0.4, 0, 0, 0, 0, 50])


def test_a_confidence_that_rises_with_distance_keeps_its_mean_as_recency() -> None:
    rising = fit(tally((0, 1, 1, 100, 20), (0, 2, 1, 100, 80)), 1, window=1, unseen=0)
    assert (rising.decay, rising.alpha) == pytest.approx((0, 0.5))


def test_frequency_is_fitted_to_what_recency_leaves() -> None:
    found = fit(tally((0, 1, 1, 100, 20), (0, 1, 3, 100, 60)), 1, window=4, unseen=0)
    assert (found.alpha, found.rho, found.kappa, found.gamma) == pytest.approx((0.4, 0.8, -0.4, 0.2))


def test_far_examples_are_no_matter_of_rounding() -> None:
    rows = ((0, 1, 1, 100, 50), (0, 900, 1, 100, 10), (1, 900, 1, 100, 10), (1, 1000, 1, 100, 30))
    near, far = np.stack(fit(tally(*rows), 2, window=1000, unseen=0)).T.tolist()
    assert near[:3] == pytest.approx([8, 0.5, 0.25])
    assert far[:3] == pytest.approx([0, 0.2, 0])


def test_few_examples_do_not_look_certain() -> None:
    assert at(fit(tally((0, 1, 1, 1, 1)), 1, window=50, unseen=30), 1, 1) == pytest.approx(1 / 31, abs=1e-6)


def test_each_rule_is_fitted_alone() -> None:
    first, second = ((0, 1, 1, 90, 40), (0, 3, 2, 70, 9)), ((1, 1, 2, 80, 8), (1, 2, 2, 60, 30))
    both = fit(tally(*first, *second), 2, window=9, unseen=5)
    alone = fit(tally(*first), 1, window=9, unseen=5)
    assert [float(part[0]) for part in both] == [float(part[0]) for part in alone]


def test_no_rules_have_no_curves() -> None:
    assert len(fit(Tally(*np.empty((5, 0), np.int64)), 0, window=50, unseen=30).alpha) == 0


@given(
    st.dictionaries(
        st.tuples(st.integers(1, 30), st.integers(1, 30)), st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=1
    )
)
def test_no_curve_is_worse_than_the_mean(examples: dict[tuple[int, int], tuple[int, int]]) -> None:
    rows = [(0, *key, right + wrong + 1, right) for key, (right, wrong) in sorted(examples.items())]
    counted = tally(*rows)
    found = fit(counted, 1, window=30, unseen=0)
    assert all(np.isfinite(part).all() for part in found)
    shares = counted.followed / counted.held
    mean = counted.followed.sum() / counted.held.sum()
    curves = Curves(*(np.repeat(part, len(rows)) for part in found))
    error = np.sum(counted.held * (value(curves, counted.distance, counted.often) - shares) ** 2)
    assert error <= np.sum(counted.held * (mean - shares) ** 2) + 1e-4 * counted.held.sum()
