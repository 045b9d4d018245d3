"""How much memory mining takes, from counts alone: upper estimates of what was measured."""

PROCESS = 80 << 20
"""The interpreter with numpy: 35 MiB measured."""
PORTIONS = 100 << 20
"""What is worked on at once: 56 MiB measured on 27,000 facts of ICEWS14."""
FACT = 1_600
"""Bytes of a fact, in the index and in the rules of the largest relation, most of which are rules.

1,510 measured on 298,821 random facts of which a sixth are of one relation, with 247,720 rules; 260 on as many of
ICEWS14, repeated.
"""
NAME = 150
"""Bytes of an entity or relation."""


def memory_bytes(triples: int, entities: int, relations: int) -> int:
    """What a process takes at most, where no relation has many more rules than the graph has facts.

    More rules come of a `min_entities` below 3, and of few entities that all meet within the window.
    """
    return PROCESS + PORTIONS + triples * FACT + (entities + relations) * NAME
