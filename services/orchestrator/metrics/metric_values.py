"""Keeps the values of the metrics, and gives them the form that Prometheus reads."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from services.orchestrator.metrics import catalogue

BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 60.0, 120.0)
"""Upper bounds of the histograms' buckets in seconds, from a search to the longest model call."""

Labels = tuple[str, ...]


class Distribution:
    """Counts a histogram's values by bucket, not cumulated, and sums them up."""

    def __init__(self) -> None:
        self.buckets = [0] * (len(BOUNDS) + 1)
        self.total = 0.0

    def add(self, bucket: int, count: int, total: float) -> None:
        """Add `count` values that fell into `bucket` and sum up to `total`."""
        self.buckets[bucket] += count
        self.total += total

    def cumulate(self) -> list[tuple[str, float]]:
        """Return pairs of an upper bound and the number of values up to it, as Prometheus requires."""
        return list(zip((*map(str, BOUNDS), "+Inf"), map(float, accumulate(self.buckets)), strict=True))


class MetricValues(Collector):
    """Values by metric and labels. Counters only grow; gauges are set anew each time."""

    def __init__(self) -> None:
        self._counters: defaultdict[tuple[str, Labels], float] = defaultdict(float)
        self._gauges: dict[tuple[str, Labels], float] = {}
        self._distributions: dict[tuple[str, Labels], Distribution] = {}

    def count(self, name: str, labels: Sequence[str], by: float) -> None:
        """Add to a counter."""
        self._counters[name, tuple(labels)] += by

    def observe(self, name: str, labels: Sequence[str], bucket: int, count: int, total: float) -> None:
        """Add to a histogram."""
        self._distributions.setdefault((name, tuple(labels)), Distribution()).add(bucket, count, total)

    def show(self, gauges: Iterable[tuple[str, Sequence[str], float]]) -> None:
        """Replace all gauges; those that are missing are no longer reported."""
        self._gauges = {(name, tuple(labels)): value for name, labels, value in gauges}

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics for prometheus_client."""
        for metric in catalogue.CATALOGUE:
            if metric.kind == "counter":
                yield self._make_family(CounterMetricFamily, metric, self._counters)
            elif metric.kind == "gauge":
                yield self._make_family(GaugeMetricFamily, metric, self._gauges)
            elif any(name == metric.name for name, _ in self._distributions):
                yield self._make_histogram(metric)

    def _make_family(
        self,
        family: type[CounterMetricFamily] | type[GaugeMetricFamily],
        metric: catalogue.Metric,
        values: Mapping[tuple[str, Labels], float],
    ) -> Metric:
        metric_family = family(metric.name, metric.help, labels=metric.labels)
        for (name, labels), value in values.items():
            if name == metric.name:
                metric_family.add_metric(labels, value)
        return metric_family

    def _make_histogram(self, metric: catalogue.Metric) -> Metric:
        made = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
        for (name, labels), found in self._distributions.items():
            if name == metric.name:
                made.add_metric(labels, found.cumulate(), found.total)
        return made
