"""The confidence of a rule by how recently and how often its body held (Gastinger et al. 2025, equations 12 and 13).

Recency: `a / (1 + phi) * (2 ** (-decay * (distance - 1)) + phi)`. Frequency adds
`rho * often / window + kappa / distance`, held within `gamma` of 0. The sum is held within 0 and 1.

The source fits recency by `scipy.optimize.curve_fit` from a heuristic start and frequency by `minimize`, both with
tolerances of 0.1. Ours are the exact least squares: recency for each decay of a grid, frequency at once.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shared.rules.simple.history import Numbers
from shared.rules.simple.tally import Tally

Floats = NDArray[np.float64]
DECAYS = 2.0 ** -np.arange(-3, 10.5, 0.5)
"""Halving within 1/8 step to 1,024 steps; a constant confidence is tried as well. The grid is ours."""
DIGITS = 6
LEAST = 1e-9
"""What differs by less is rounding."""


class Curves(NamedTuple):
    """One curve a rule, each coefficient (rules,)."""

    decay: Floats
    alpha: Floats
    phi: Floats
    rho: Floats
    kappa: Floats
    gamma: Floats
    window: Floats
    """Steps within which the body is counted."""


def value(curves: Curves, distance: Numbers, often: Numbers) -> Floats:
    """The confidence at each distance (from 1); recency alone where the body did not hold within the window."""
    decayed = np.exp2(-curves.decay * (distance - 1.0))
    recency = curves.alpha / (1 + curves.phi) * (decayed + curves.phi)
    frequency = np.clip(curves.rho * often / curves.window + curves.kappa / distance, -curves.gamma, curves.gamma)
    return np.clip(recency + np.where(often > 0, frequency, 0), 0, 1)


def fit(tally: Tally, rules: int, window: int, unseen: int) -> Curves:
    """The curves of the rules 0 to `rules`, which all have a row.

    `unseen` examples at each distance that the head did not follow are added, as in the source. A rule that was never
    seen at distance 1 gets its mean confidence at any distance, as there.
    """
    place, seen = _per_distance(tally)
    near = np.bincount(seen.rule[seen.distance == 1], minlength=rules) > 0
    decay, alpha, phi = _recency(seen, seen.followed / (seen.held + unseen), near)
    none = np.zeros(rules)
    curves = Curves(decay, alpha, phi, none, none, none, np.full(rules, float(window)))
    smoothed = tally.followed / tally.held * (seen.held / (seen.held + unseen))[place]
    missing = smoothed - value(take(curves, tally.rule), tally.distance, np.zeros_like(tally.often))
    rho, kappa, gamma = _frequency(tally, missing * near[tally.rule], window, rules)
    return Curves(*(np.round(part, DIGITS) for part in curves._replace(rho=rho, kappa=kappa, gamma=gamma)))


def take(curves: Curves, rules: Numbers | NDArray[np.bool_]) -> Curves:
    """The curve of each of `rules`."""
    return Curves(*(part[rules] for part in curves))


def _per_distance(tally: Tally) -> tuple[Numbers, Tally]:
    """The rows of each rule and distance as one, and where each row went."""
    base = int(tally.distance.max(initial=0)) + 1
    codes, place = np.unique(tally.rule * base + tally.distance, return_inverse=True)
    held, followed = (np.bincount(place, part).astype(np.int64) for part in (tally.held, tally.followed))
    return place, Tally(codes // base, codes % base, np.zeros_like(codes), held, followed)


def _recency(seen: Tally, smoothed: Floats, near: NDArray[np.bool_]) -> tuple[Floats, Floats, Floats]:
    """Decay, alpha and phi of least error, weighted by examples; of equal ones the constant, then the fastest."""
    ones, y, yy = (_totals(seen, values, len(near)) for values in (np.ones_like(smoothed), smoothed, smoothed**2))
    decay, alpha, phi, best = np.zeros(len(near)), y / ones, np.zeros(len(near)), yy - y**2 / ones
    for tried in DECAYS:
        falls = np.exp2(-tried * (seen.distance - 1.0)) * near[seen.rule]
        e, ee, ey = (_totals(seen, values, len(near)) for values in (falls, falls**2, falls * smoothed))
        steep, flat = _falling(ones, e, ee, y, ey)
        error = yy + steep**2 * ee + 2 * steep * flat * e + flat**2 * ones - 2 * steep * ey - 2 * flat * y
        better = near & (steep > 0) & (error < best - LEAST)
        best, decay = np.where(better, error, best), np.where(better, tried, decay)
        alpha = np.where(better, steep + flat, alpha)
        phi = np.where(better, flat / np.where(better, steep, 1), phi)
    return decay, alpha, phi


def _falling(ones: Floats, e: Floats, ee: Floats, y: Floats, ey: Floats) -> tuple[Floats, Floats]:
    """`steep * e + flat` of least squares, from sums of products; flat is at least 0."""
    det = ones * ee - e * e
    free = det > LEAST * ones * ee
    alone = ey / np.where(ee > 0, ee, 1)
    steep = np.where(free, (ones * ey - e * y) / np.where(free, det, 1), alone)
    flat = np.where(free, (y - steep * e) / ones, 0)
    return np.where(flat < 0, alone, steep), np.maximum(flat, 0)


def _frequency(tally: Tally, missing: Floats, window: int, rules: int) -> tuple[Floats, Floats, Floats]:
    """Rho and kappa of least squares of what recency leaves, and gamma, the most that it leaves.

    Where both cannot be told apart, kappa is 0 (ours).
    """
    p, q = tally.often / window, 1 / tally.distance
    pp, pq, qq, py, qy = (_totals(tally, part, rules) for part in (p * p, p * q, q * q, p * missing, q * missing))
    det = pp * qq - pq * pq
    free = det > LEAST * pp * qq
    safe = np.where(free, det, 1)
    gamma = np.zeros(rules)
    np.maximum.at(gamma, tally.rule, np.abs(missing))
    return np.where(free, (qq * py - pq * qy) / safe, py / pp), np.where(free, (pp * qy - pq * py) / safe, 0), gamma


def _totals(tally: Tally, values: Floats, rules: int) -> Floats:
    """The sum of a value over each rule's examples."""
    return np.bincount(tally.rule, tally.held * values, rules).astype(np.float64)
