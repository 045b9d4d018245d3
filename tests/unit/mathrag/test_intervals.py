"""Intervals and agreement: their formulas, published examples, and statsmodels, which agrees."""

import math
import statistics
import tracemalloc
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from mathrag import intervals
from mathrag.intervals import (
    CLUSTERED,
    DETERMINISTIC,
    RESAMPLES,
    RESAMPLES_AT_ONCE,
    SHARED,
    Interval,
    bootstrap,
    count_values,
    estimate_share,
    explain_repeats,
    fit_monotone,
    measure_spread,
    poisson_interval,
    wilson,
)
from shared.statistics.agreement import (
    Level,
    compute_weighted_kappa,
    estimate_cohens_kappa,
    estimate_krippendorffs_alpha,
)

# Wilson's interval.


Z = 1.959963984540054
COUNTS = st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


@given(COUNTS)
def test_bounds_follow_wilsons_formula(counts: tuple[int, int]) -> None:
    successes, n = counts
    p = successes / n
    centre = (p + Z * Z / (2 * n)) / (1 + Z * Z / n)
    half = Z / (1 + Z * Z / n) * math.sqrt(p * (1 - p) / n + Z * Z / (4 * n * n))
    interval = wilson(successes, n)
    assert (interval.low, interval.high) == (
        pytest.approx(centre - half, abs=1e-9),
        pytest.approx(centre + half, abs=1e-9),
    )
    assert interval.value == p


def test_86_of_100_is_not_separable_from_81() -> None:
    interval = wilson(86, 100)
    assert (round(interval.low, 4), round(interval.high, 4)) == (0.7786, 0.9147)


@given(COUNTS)
def test_the_interval_holds_its_value_and_stays_in_range(counts: tuple[int, int]) -> None:
    interval = wilson(*counts)
    assert interval.value is not None
    assert 0 <= interval.low <= interval.value + 1e-12
    assert interval.value - 1e-12 <= interval.high <= 1


def test_no_success_still_leaves_doubt() -> None:
    assert wilson(0, 10).low == 0
    assert wilson(0, 10).high == pytest.approx(0.2775, abs=1e-4)
    assert wilson(10, 10).low == pytest.approx(1 - 0.2775, abs=1e-4)


def test_nothing_observed_has_no_value_and_the_widest_interval() -> None:
    assert wilson(0, 0) == Interval(value=None, low=0.0, high=1.0)


def test_more_confidence_is_a_wider_interval() -> None:
    wide, usual, narrow = (wilson(30, 50, confidence) for confidence in (0.99, 0.95, 0.8))
    assert wide.low < usual.low < narrow.low < narrow.high < usual.high < wide.high


@pytest.mark.parametrize(("successes", "n"), [(-1, 5), (6, 5), (1, 0), (0, -1)])
def test_impossible_counts_are_refused(successes: int, n: int) -> None:
    with pytest.raises(ValueError, match="`successes`"):
        wilson(successes, n)


@pytest.mark.parametrize("confidence", [0, 1, 95])
def test_a_confidence_in_per_cent_is_refused_in_intervals(confidence: float) -> None:
    with pytest.raises(ValueError, match="`confidence`"):
        wilson(1, 2, confidence)


@pytest.mark.parametrize(
    ("count", "low", "high"), [(0, 0.0, 3.689), (1, 0.0253, 5.572), (5, 1.623, 11.668), (30, 20.241, 42.827)]
)
def test_the_interval_of_a_count_is_garwoods(count: int, low: float, high: float) -> None:
    assert poisson_interval(count) == (pytest.approx(low, abs=6e-4), pytest.approx(high, abs=6e-4))


@pytest.mark.parametrize(("count", "confidence"), [(-1, 0.95), (3, 0.0), (3, 1.0)])
def test_an_impossible_count_or_confidence_is_refused(count: int, confidence: float) -> None:
    with pytest.raises(ValueError, match="must be"):
        poisson_interval(count, confidence)


# The bootstrap over items, held against scipy's, which draws every item of every resample.

SHARES = st.fractions(0, 1, max_denominator=5)
VALUES = st.dictionaries(SHARES, st.integers(1, 40), min_size=1, max_size=6)


def drawn(*strata: intervals.Values) -> Interval:
    found = bootstrap(strata)
    assert found is not None
    return found


def spelled(values: intervals.Values) -> list[float]:
    return [float(value) for value, count in values.items() for _ in range(count)]


@pytest.mark.parametrize(
    "values",
    [
        {Fraction(0): 39, Fraction(1): 61},
        {Fraction(0): 20, Fraction(1, 5): 13, Fraction(2, 5): 5, Fraction(4, 5): 30, Fraction(1): 132},
        {Fraction(-1): 17, Fraction(0): 462, Fraction(1): 21},
    ],
)
def test_it_is_scipys_percentile_interval(values: intervals.Values) -> None:
    items = spelled(values)
    theirs = stats.bootstrap((items,), np.mean, method="percentile", batch=100, rng=np.random.default_rng(7))
    found = drawn(values)
    assert found.value == pytest.approx(np.mean(items))
    near = theirs.standard_error / 10 + 1 / len(items)
    assert (found.low, found.high) == pytest.approx(tuple(theirs.confidence_interval), abs=near)


def test_strata_are_drawn_apart_and_every_item_counts_alike() -> None:
    easy, hard = {Fraction(1): 95, Fraction(0): 5}, {Fraction(1): 10, Fraction(0): 290}
    together, apart = drawn(intervals.merge_strata([easy, hard])), drawn(easy, hard)
    assert apart.value == together.value == pytest.approx(105 / 400)
    assert apart.high - apart.low < 0.6 * (together.high - together.low)
    spread = np.sqrt(100 * 0.95 * 0.05 + 300 * (1 / 30) * (29 / 30)) / 400
    assert apart.high - apart.low == pytest.approx(2 * 1.96 * spread, rel=0.1)


@settings(max_examples=20)
@given(VALUES)
def test_the_interval_holds_the_mean_and_stays_among_the_values(values: intervals.Values) -> None:
    found = drawn(values)
    assert found.value is not None
    assert float(min(values)) - 1e-9 <= found.low <= found.value + 1e-9
    assert found.value - 1e-9 <= found.high <= float(max(values)) + 1e-9


@settings(max_examples=10)
@given(VALUES, VALUES, st.randoms(use_true_random=False))
def test_the_same_items_have_the_same_interval_however_they_were_counted(
    one: intervals.Values,
    other: intervals.Values,
    random,  # type: ignore[no-untyped-def]
) -> None:
    shuffled = list(one.items())
    random.shuffle(shuffled)
    assert drawn(one, other) == drawn(dict(shuffled), other)


@settings(max_examples=10)
@given(VALUES)
def test_exchanging_the_sides_of_a_difference_exchanges_its_bounds(values: intervals.Values) -> None:
    one, other = drawn(values), drawn({-value: count for value, count in values.items()})
    width = one.high - one.low
    assert (one.low, one.high) == pytest.approx((-other.high, -other.low), abs=0.1 * width + 1e-9)


def test_repeats_do_not_narrow_it() -> None:
    once = Counter({(1, 1): 60, (0, 1): 40})
    five = Counter({(5, 5): 60, (0, 5): 40})
    assert drawn(intervals.count_values(once)) == drawn(intervals.count_values(five))


def test_more_items_narrow_it_with_their_square_root() -> None:
    narrow, wide = (drawn({Fraction(0): 40 * n, Fraction(1): 60 * n}) for n in (4, 1))
    assert narrow.high - narrow.low == pytest.approx((wide.high - wide.low) / 2, rel=0.1)


def test_items_that_are_all_alike_leave_no_width() -> None:
    found = drawn({Fraction(1): 5})
    assert (found.low, found.value, found.high) == (1, 1, 1)


def test_of_nothing_there_is_no_interval() -> None:
    assert bootstrap([]) is None
    assert bootstrap([{}, {}]) is None
    assert drawn({}, {Fraction(1, 2): 3}).value == 0.5


@pytest.mark.parametrize("confidence", [0, 1, 95])
def test_a_confidence_in_per_cent_is_refused_in_bootstrap(confidence: float) -> None:
    with pytest.raises(ValueError, match="`confidence`"):
        bootstrap([{Fraction(1): 1}], confidence)


def test_a_hundred_thousand_items_take_no_more_memory_than_a_hundred() -> None:
    values = {Fraction(value, 5): 100_000 // 6 for value in range(6)}
    drawn(values)  # imports numpy
    tracemalloc.start()
    try:
        found = drawn(values)
        assert tracemalloc.get_traced_memory()[1] < 2 << 20
    finally:
        tracemalloc.stop()
    assert found.high - found.low < 0.005


def test_all_resamples_are_drawn() -> None:
    assert RESAMPLES % RESAMPLES_AT_ONCE == 0


# Means that are made to grow.

MEANS = st.lists(st.tuples(st.floats(1, 5), st.integers(1, 50)), min_size=1, max_size=6)


def test_what_grows_already_stays() -> None:
    assert fit_monotone([1, 2.5, 2.5, 4, 5], [3, 1, 1, 1, 1]) == (1, 2.5, 2.5, 4, 5)


def test_neighbours_that_fall_are_pooled_by_their_weights() -> None:
    assert fit_monotone([1, 4, 1, 5], [1, 1, 2, 1]) == (1, 2, 2, 5)


def test_where_nothing_was_seen_the_line_between_its_neighbours_counts() -> None:
    assert fit_monotone([None, 2, None, 4, None], [0, 1, 0, 1, 0]) == (2, 2, 3, 4, 4)


@given(observed=MEANS)
def test_it_never_falls_and_keeps_the_mean(observed: list[tuple[float, int]]) -> None:
    means, weights = [mean for mean, _ in observed], [weight for _, weight in observed]
    fitted = fit_monotone(means, weights)
    assert list(fitted) == sorted(fitted)
    before, after = (
        sum(each * weight for each, weight in zip(values, weights, strict=True)) for values in (means, fitted)
    )
    assert after == pytest.approx(before, abs=1e-3)


def test_of_nothing_there_is_nothing() -> None:
    with pytest.raises(ValueError, match="`means` has no observation"):
        fit_monotone([None, None], [0, 0])


# The spread between repeats, and what must be said of it.

COUNTS_OF_REPEATS = st.lists(st.integers(1, 50).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), min_size=2)


@given(COUNTS_OF_REPEATS)
def test_it_is_the_sample_deviation_of_the_repeats_accuracies(counts: list[tuple[int, int]]) -> None:
    found = measure_spread(counts)
    accuracies = [right / graded for right, graded in counts]
    assert found.accuracies == tuple(accuracies)
    assert found.mean == pytest.approx(np.mean(accuracies))
    assert found.std == pytest.approx(np.std(accuracies, ddof=1), abs=1e-12)


def test_one_repeat_has_no_spread() -> None:
    assert (measure_spread([(3, 4)]).mean, measure_spread([(3, 4)]).std) == (0.75, None)


def test_a_repeat_without_a_verdict_keeps_its_place_and_counts_for_nothing() -> None:
    found = measure_spread([(1, 4), (0, 0), (3, 4)])
    assert found.accuracies == (0.25, None, 0.75)
    assert (found.mean, found.std) == (0.5, statistics.stdev([0.25, 0.75]))
    assert measure_spread([(0, 0)]).mean is None
    assert measure_spread([]).accuracies == ()


@pytest.mark.parametrize(
    ("greedy", "shared", "said"),
    [(True, True, SHARED), (True, False, DETERMINISTIC), (False, True, CLUSTERED), (False, False, CLUSTERED)],
)
def test_a_deviation_of_zero_by_construction_is_said_to_be_that(greedy: bool, shared: bool, said: str) -> None:
    assert explain_repeats(greedy=greedy, shared=shared) == said
    assert ("0 by construction" in said) == greedy


def test_greedy_answers_vary_only_with_a_judge_that_is_asked_anew() -> None:
    assert "the judge model, asked again in each" in explain_repeats(greedy=True, shared=True, judged=True)
    assert explain_repeats(greedy=False, shared=True, judged=True) == CLUSTERED


# The share of right answers over items, with its interval.

ITEMS = st.lists(st.integers(1, 9).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), min_size=1, max_size=60)


def test_an_item_counts_once_however_often_it_was_answered() -> None:
    found = estimate_share(count_values({(5, 5): 10, (0, 1): 30}))
    assert found == wilson(10, 40)
    assert (found.value, round(found.low, 3), round(found.high, 3)) == (0.25, 0.142, 0.402)


@given(ITEMS)
def test_the_share_lies_in_its_intervals(items: list[tuple[int, int]]) -> None:
    values = count_values(Counter(items))
    found, resampled = estimate_share(values), bootstrap([values])
    mean = sum(Fraction(right, answers) for right, answers in items) / len(items)
    assert resampled is not None
    assert found.value == resampled.value == float(mean)
    for interval in (found, resampled):
        assert interval.low - 1e-12 <= float(mean) <= interval.high + 1e-12


@given(st.integers(1, 9).flatmap(lambda n: st.tuples(st.lists(st.integers(0, n), min_size=1, max_size=60), st.just(n))))
def test_with_equal_repeats_it_is_the_share_of_all_answers(job: tuple[list[int], int]) -> None:
    rights, repeats = job
    found = estimate_share(count_values(Counter((right, repeats) for right in rights)))
    assert found.value == sum(rights) / (repeats * len(rights))


@pytest.mark.parametrize(("right", "n"), [(0, 1), (1, 2), (0, 7), (7, 7), (86, 100), (499, 500)])
def test_with_one_answer_an_item_it_is_wilsons(right: int, n: int) -> None:
    assert estimate_share(count_values(Counter({(1, 1): right, (0, 1): n - right}))) == wilson(right, n)


@pytest.mark.parametrize("n", [1, 2, 3, 10, 101, 1000, 20_000])
@pytest.mark.parametrize("right", [Fraction(1, 2), Fraction(1), Fraction(3, 2)])
def test_half_an_item_of_rounding_stays_inside_near_both_ends(n: int, right: Fraction) -> None:
    for share in (right / n, 1 - right / n):
        if 0 <= share <= 1:
            found = estimate_share({share: n})
            assert found.low <= share <= found.high


def test_without_items_nothing_is_known() -> None:
    assert estimate_share({}) == wilson(0, 0)


# Kappa and alpha: published examples, and statsmodels, another implementation, which agrees.

TABLES = st.lists(st.lists(st.integers(0, 30), min_size=5, max_size=5), min_size=5, max_size=5)
PAIRS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=40)
OBSERVERS = ("123321412...", "1233224125.3", ".3332342251.", "12332441251.")
"""Krippendorff (2011), section C: four observers, twelve units, five values, some missing."""


def units(*observers: str) -> list[list[int]]:
    return [[int(each) - 1 for each in unit if each != "."] for unit in zip(*observers, strict=True)]


@given(table=TABLES)
def test_statsmodels_finds_the_same(table: list[list[int]]) -> None:
    from statsmodels.stats import inter_rater  # 65 MiB with pandas, for the tests that compare with it

    kappa = compute_weighted_kappa(table)
    if kappa is None:
        assert sum(map(any, table)) <= 1 or sum(map(any, zip(*table, strict=True))) <= 1
        return
    oracle = inter_rater.cohens_kappa(np.array(table), weights=np.arange(5), wt="quadratic", return_results=False)
    assert kappa == pytest.approx(oracle, abs=1e-9)


def test_perfect_agreement_is_one_and_independence_is_zero() -> None:
    assert compute_weighted_kappa([[3, 0], [0, 4]]) == 1
    assert compute_weighted_kappa([[1, 2], [2, 4]]) == 0
    assert compute_weighted_kappa([[0, 5], [5, 0]]) == -1


def test_far_apart_counts_more_than_next_to_each_other() -> None:
    near = compute_weighted_kappa([[4, 1, 0], [0, 4, 0], [0, 0, 4]])
    far = compute_weighted_kappa([[4, 0, 1], [0, 4, 0], [0, 0, 4]])
    assert near is not None
    assert far is not None
    assert near > far


@pytest.mark.parametrize("table", [[[0, 0], [0, 0]], [[7, 0], [0, 0]]])
def test_without_anything_to_disagree_about_there_is_no_kappa(table: list[list[int]]) -> None:
    assert compute_weighted_kappa(table) is None


@pytest.mark.parametrize(("level", "published"), [("nominal", 0.743), ("ordinal", 0.815), ("interval", 0.849)])
def test_krippendorffs_example_has_the_published_alphas(level: Level, published: float) -> None:
    found = estimate_krippendorffs_alpha(units(*OBSERVERS), 5, level)
    assert found.value == pytest.approx(published, abs=0.0005)
    assert found.low is not None
    assert found.high is not None
    assert found.low < published < found.high


def test_the_textbook_example_of_kappa() -> None:
    pairs = [(1, 1)] * 20 + [(1, 0)] * 5 + [(0, 1)] * 10 + [(0, 0)] * 15
    assert estimate_cohens_kappa(pairs, 2, "nominal").value == pytest.approx(0.4)


@given(pairs=PAIRS)
def test_statsmodels_finds_the_same_unweighted_kappa(pairs: list[tuple[int, int]]) -> None:
    from statsmodels.stats import inter_rater  # 65 MiB with pandas, for the tests that compare with it

    found = estimate_cohens_kappa(pairs, 3, "nominal").value
    if found is None:
        assert len(set(pairs)) == 1
        return
    table = np.zeros((3, 3))
    for pair in pairs:
        table[pair] += 1
    assert found == pytest.approx(inter_rater.cohens_kappa(table, return_results=False), abs=1e-9)


@given(rated=st.lists(st.lists(st.integers(0, 3), min_size=3, max_size=3), min_size=2, max_size=20))
def test_alpha_of_complete_nominal_data_follows_from_fleiss_kappa(rated: list[list[int]]) -> None:
    from statsmodels.stats import inter_rater  # 65 MiB with pandas, for the tests that compare with it

    found = estimate_krippendorffs_alpha(rated, 4, "nominal").value
    if found is None:
        assert len({each for unit in rated for each in unit}) == 1
        return
    kappa = inter_rater.fleiss_kappa(np.array([np.bincount(unit, minlength=4) for unit in rated]))
    n = 3 * len(rated)
    assert found == pytest.approx(1 - (1 - kappa) * (n - 1) / n, abs=1e-9)


@pytest.mark.slow
def test_an_interval_is_that_of_units_drawn_one_by_one() -> None:
    rng = np.random.default_rng(5)
    truth = rng.integers(0, 5, 120)
    rated = [[int(each), int(np.clip(each + rng.integers(-1, 2), 0, 4))] for each in truth]
    found = estimate_krippendorffs_alpha(rated, 5, "interval", seed=3)
    drawn = [
        estimate_krippendorffs_alpha([rated[i] for i in rng.integers(0, 120, 120)], 5, "interval").value or 0
        for _ in range(300)
    ]
    assert found.low == pytest.approx(np.quantile(drawn, 0.025), abs=0.01)
    assert found.high == pytest.approx(np.quantile(drawn, 0.975), abs=0.01)


def test_the_seed_makes_the_interval() -> None:
    first, again, other = (estimate_krippendorffs_alpha(units(*OBSERVERS), 5, "interval", seed) for seed in (1, 1, 2))
    assert first == again
    assert first.value == other.value
    assert (first.low, first.high) != (other.low, other.high)


@pytest.mark.parametrize("rated", [[], [[2]], [[1], [3]], [[4, 4], [4, 4]]])
def test_without_two_ratings_or_a_difference_there_is_no_alpha(rated: list[list[int]]) -> None:
    assert estimate_krippendorffs_alpha(rated, 5, "ordinal").value is None


def test_where_most_resamples_agree_by_chance_alone_there_is_no_interval() -> None:
    found = estimate_cohens_kappa([(0, 0)] * 5 + [(1, 1)], 2, "nominal")
    assert (found.value, found.low, found.high) == (1, None, None)
