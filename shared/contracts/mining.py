"""How rules are mined: each miner's limits, with their defaults' sources."""

from typing import Annotated, Literal

import msgspec

Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Count = Annotated[int, msgspec.Meta(ge=1, le=1_000_000_000)]
Draws = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
"""Random draws that are held in memory together."""


class Amie(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="miner", tag="amie"):
    """Closed connected rules of a static graph (AMIE3, Lajus et al. 2020); times are left out."""

    min_support: Count = 2
    """Positive examples of a rule."""
    min_head_coverage: Share = 0.01
    """Share of the head relation's facts that a rule must explain."""
    min_pca_confidence: Share = 0.1
    """Lowest PCA confidence."""
    max_atoms: Annotated[int, msgspec.Meta(ge=2, le=3)] = 3
    """Most atoms, the head counted."""
    min_head_facts: Count = 100
    """Facts that a head's relation must have (AMIE's `-minis`)."""
    constants: bool = False
    """Whether bodies may name entities: in atoms of a variable of the head, the 200 best supported of each variable."""


class TLogic(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="miner", tag="tlogic"):
    """Cyclic rules of a temporal graph, from random walks back in time (TLogic, Liu et al. 2022)."""

    walks: Draws = 200
    """Walks of a relation and length."""
    max_length: Annotated[int, msgspec.Meta(ge=1, le=3)] = 3
    """Most atoms of a body."""
    transition: Literal["exponential", "uniform"] = "exponential"
    """How a walk chooses its next edge: recent ones rather, or all alike."""
    samples: Draws = 500
    """Bodies that a rule's confidence is estimated from."""
    exact: bool = False
    """Whether all bodies are counted instead."""
    min_confidence: Share = 0.0
    """Lowest confidence; rules of confidence 0 are never kept."""
    min_head_facts: Count = 1
    """Facts that a head's relation must have."""
    seed: Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)] = 0
    """Of the walks and samples; with the same seed the same bank."""


class TemporalSimple(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="miner", tag="temporal-simple"
):
    """The four simple types of rule of a temporal graph (CountTRuCoLa, Gastinger et al. 2025); defaults are its own.

    Its repository sets them per dataset (`rule_based/config-default.yaml`); these are of its ICEWS14.
    """

    window: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 50
    """Steps before a fact within which a body counts."""
    min_support: Count = 1
    """Examples that a rule must get right."""
    min_entities: Count = 3
    """Entities in which body and head of a rule with constants must meet (`C_X_COUNT`)."""
    unseen_negatives: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 30
    """Wrong examples added at each distance, so that few right ones do not look certain."""
    min_head_facts: Count = 1
    """Facts that a head's relation must have."""


Mining = Amie | TLogic | TemporalSimple
"""Which miner, and its limits."""
