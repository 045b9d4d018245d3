"""Draw a stratified sample. This module is pure: equal labels, count and seed give the same sample."""

from collections import defaultdict
from collections.abc import Sequence
from random import Random


def draw_stratified(labels: Sequence[str], count: int, seed: int) -> list[int]:
    """Return `count` positions in order, in proportion to each label, by largest remainders; ties by name.

    Raises:
        ValueError: there are not so many.
    """
    if count > len(labels):
        raise ValueError(f"{count} of {len(labels)}: there are not so many")
    groups: defaultdict[str, list[int]] = defaultdict(list)
    for position, label in enumerate(labels):
        groups[label].append(position)
    shares = {label: count * len(group) / len(labels) for label, group in groups.items()}
    taken = {label: int(share) for label, share in shares.items()}
    for label in sorted(shares, key=lambda name: (taken[name] - shares[name], name))[: count - sum(taken.values())]:
        taken[label] += 1
    rng = Random(seed)  # noqa: S311 - a sample, no secret
    return sorted(position for label in sorted(groups) for position in rng.sample(groups[label], taken[label]))
