"""Compare link prediction by mined rules with plain predictors: `python -m bench.link_prediction DIR [--facts 300]`.

DIR holds `valid.txt`, which rules are mined from, and `test.txt`, of which a fixed random selection is predicted: lines
of subject, relation, object and date (ICEWS14, `../shared/data/kg/icews14`). A query sees all facts of earlier days.
`plain` is the implementation of TLogic of the tests, written once more from the description; the last line says
whether each run of the miner lies where one more run of the plain one lies with 95 % (Student's t, from its seeds).
`temporal-simple` and `last held`, which repeats what the entity was linked to last, know no seed.
"""

import argparse
import random
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import stats

from mathrag.cli.held_out import read_facts
from shared.contracts.mining import TemporalSimple, TLogic
from shared.rules import simple
from shared.rules.evaluation import LinkPrediction, Predict, Query, evaluate
from shared.rules.graph import Graph, steps
from shared.rules.simple import prediction
from shared.rules.simple.history import read as read_history
from shared.rules.tlogic import mine
from shared.rules.tlogic.prediction import Predictor
from shared.rules.trial import make_trial
from shared.statistics.intervals import Interval
from tests.unit.shared.rules.plain_tlogic import Plain, Quad


class Trial(NamedTuple):
    """Graphs of the facts to mine, of the facts to predict, and of all facts."""

    train: Graph
    tested: Graph
    known: Graph


def read(folder: Path, facts: int) -> Trial:
    """Read the splits and select facts to predict, the same ones each time."""
    train, held_out = (read_facts(folder, [split]).graph for split in ("valid", "test"))
    tested, known, *_ = make_trial(train, held_out)
    chosen = np.random.default_rng(0).permutation(len(tested.triples))[:facts]
    return Trial(train, tested._replace(triples=tested.triples[chosen], times=steps(tested)[chosen]), known)


def train_tlogic(trial: Trial, seed: int) -> Predict:
    """Mine rules with TLogic's defaults."""
    rules = [
        rule
        for number in relations_to_mine(trial)
        for rule in mine(trial.train, trial.train.relations[number], TLogic(seed=seed))
    ]
    return Predictor(rules, trial.known).predict


def train_plain(trial: Trial, seed: int) -> Predict:
    """Mine rules with the plain implementation of the tests."""
    heads = [head for number in relations_to_mine(trial) for head in (number, ~number)]
    rules = Plain(quads_of(trial.train)).learn(heads, random.Random(seed))
    plain = Plain(quads_of(trial.known))

    def predict(query: Query) -> dict[int, float]:
        head = query.relation if query.forward else ~query.relation
        return plain.predict(rules.get(head, []), query.entity, query.time)

    return predict


def train_simple(trial: Trial, _: int) -> Predict:
    """Mine rules of the four simple types, with the defaults."""
    relations = [trial.train.relations[number] for number in relations_to_mine(trial)]
    rules = [rule for relation in relations for rule in simple.mine(trial.train, relation, TemporalSimple())]
    return prediction.Predictor(rules, trial.known).predict


def train_last(trial: Trial, _: int) -> Predict:
    """Predict without rules what the relation led to from the entity, the latest first."""
    history = read_history(trial.known)

    def predict(query: Query) -> dict[int, float]:
        link = 2 * query.relation + (not query.forward)
        trails = np.flatnonzero((history.entity == query.entity) & (history.link[history.anchor] == link))
        distance, _ = history.seen(trails, query.time, np.ones_like(trails))
        targets = history.target[history.anchor[trails]]
        return {target: 1 / ago for target, ago in zip(targets.tolist(), distance.tolist(), strict=True) if ago}

    return predict


def relations_to_mine(trial: Trial) -> list[int]:
    """Return the queries' relations that have facts to mine; rules of others would not be applied."""
    numbers: list[int] = np.intersect1d(trial.tested.triples[:, 1], trial.train.triples[:, 1]).tolist()
    return numbers


def quads_of(graph: Graph) -> list[Quad]:
    """List facts in the form of the plain implementation."""
    return [(s, r, o, t) for (s, r, o), t in zip(graph.triples.tolist(), steps(graph).tolist(), strict=True)]


def runs(name: str, train: Callable[[Trial, int], Predict], trial: Trial, seeds: int) -> Iterator[LinkPrediction]:
    """Evaluate the predictor with each seed; print a line for each as it ends."""
    for seed in range(seeds):
        begun = time.monotonic()
        predict = train(trial, seed)
        mined = time.monotonic()
        result = evaluate(predict, trial.tested, trial.known)
        measures = [show(figure) for figure in (result.mrr, result.hits_1, result.hits_3, result.hits_10)]
        took = f"{mined - begun:7.1f} s {time.monotonic() - mined:7.1f} s"
        print(f"{name:16} {seed:4} {'  '.join(measures)} {took}", flush=True)
        yield result


def show(interval: Interval) -> str:
    """Show the value and its interval over queries."""
    return f"{interval.value:.4f} [{interval.low:.4f}, {interval.high:.4f}]"


def interval_of_another(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % prediction interval of one more value, if all are of one normal distribution."""
    spread = stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) * np.sqrt(1 + 1 / len(values))
    return float(np.mean(values) - spread), float(np.mean(values) + spread)


def main() -> None:
    """Print the measures of each predictor and seed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--facts", type=int, default=300, help="facts of test.txt that are predicted, in two queries")
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    if options.seeds < 2:
        parser.error("--seeds: name 2 or more, as their spread is compared")
    trial = read(options.folder, options.facts)
    print(
        f"{'predictor':16} seed {'  '.join(f'{name:24}' for name in ('MRR', 'hits@1', 'hits@3', 'hits@10'))}"
        f" {'mined':>9} {'applied':>9}"
    )
    for name, train in (("temporal-simple", train_simple), ("last held", train_last)):
        list(runs(name, train, trial, seeds=1))
    ours = [result.mrr.value or 0.0 for result in runs("tlogic", train_tlogic, trial, options.seeds)]
    plain = [result.mrr.value or 0.0 for result in runs("plain", train_plain, trial, options.seeds)]
    low, high = interval_of_another(plain)
    inside = sum(low <= value <= high for value in ours)
    print(
        f"MRR of the plain one: {np.mean(plain):.4f}, another run's within [{low:.4f}, {high:.4f}]; "
        f"of the miner: {np.mean(ours):.4f}, {inside} of {len(ours)} runs inside"
    )


if __name__ == "__main__":
    main()
