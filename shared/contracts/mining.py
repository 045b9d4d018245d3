"""The limits of each rule miner; the defaults are those of the miner's authors."""

from typing import Annotated, Literal

import msgspec

Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Count = Annotated[int, msgspec.Meta(ge=1, le=1_000_000_000)]
Draws = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
"""Random draws that are held in memory together."""


class Amie(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="miner", tag="amie"):
    """Mine closed connected rules of a static graph (AMIE3, Lajus et al. 2020); times are ignored."""

    min_support: Count = 2
    """Minimum number of positive examples of a rule."""
    min_head_coverage: Share = 0.01
    """Minimum share of the head relation's facts that a rule must explain."""
    min_pca_confidence: Share = 0.1
    """Minimum PCA confidence."""
    max_atoms: Annotated[int, msgspec.Meta(ge=2, le=3)] = 3
    """Maximum number of atoms, including the head."""
    min_head_facts: Count = 100
    """Minimum number of facts of a head's relation (AMIE's `-minis`)."""
    constants: bool = False
    """Whether bodies may name entities: in atoms with a variable of the head, the 200 best supported for each
    variable."""


class TLogic(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="miner", tag="tlogic"):
    """Mine cyclic rules of a temporal graph, from random walks back in time (TLogic, Liu et al. 2022)."""

    walks: Draws = 200
    """Number of walks for each relation and length."""
    max_length: Annotated[int, msgspec.Meta(ge=1, le=3)] = 3
    """Maximum number of atoms of a body."""
    transition: Literal["exponential", "uniform"] = "exponential"
    """How a walk chooses its next edge: recent ones with a higher probability, or all with the same."""
    samples: Draws = 500
    """Number of sampled bodies from which a rule's confidence is estimated."""
    exact: bool = False
    """Whether all bodies are counted instead of a sample."""
    min_confidence: Share = 0.0
    """Minimum confidence; rules of confidence 0 are never kept."""
    min_head_facts: Count = 1
    """Minimum number of facts of a head's relation."""
    seed: Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)] = 0
    """Seed of the walks and samples; the same seed gives the same bank."""


class TemporalSimple(msgspec.Struct, frozen=True, kw_only=True, tag_field="miner", tag="temporal-simple"):
    """The limits of a miner of earlier releases, which stored jobs and rule banks still name."""

    window: int = 50
    min_support: int = 1
    min_entities: int = 3
    unseen_negatives: int = 30
    min_head_facts: int = 1


Mining = Amie | TLogic
"""The miner, and its limits."""
StoredMining = Mining | TemporalSimple
"""The same in a stored job, call or bank, which may be of an earlier release."""
