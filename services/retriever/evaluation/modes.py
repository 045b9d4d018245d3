"""Ways to search: one list as it is, or both of them fused as a job would."""

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from services.retriever.ports import Match
from shared.contracts.params import EnhanceParams, FusionParams, Params
from shared.errors import Invalid
from shared.rag.fusion import fuse
from shared.rag.normalise import NORMALISERS

Kind = Literal["dense", "sparse"]
WEIGHTED = "weighted"
RERANK = "rerank"
ENHANCED = "enhanced"
NAMES = (
    *("dense", "sparse", "hybrid", WEIGHTED),
    *(f"{WEIGHTED}-{normaliser}" for normaliser in NORMALISERS),
    *(ENHANCED, RERANK),
)


class Mode(msgspec.Struct, frozen=True, kw_only=True):
    """One way, with what it depends on."""

    name: str
    kinds: tuple[Kind, ...]
    """Which lists it needs."""
    fusion: FusionParams = FusionParams()
    rrf_k: int = 60
    reranks: bool = False
    """Whether a cross-encoder has the last word."""
    enhances: bool = False
    """Whether every query is searched for in a second wording, too."""
    enhance: EnhanceParams = EnhanceParams()

    def ranked(self, lists: Mapping[Kind, Sequence[Match]]) -> list[str]:
        """The documents for one query, best first, before any reranking, from what each index found for it."""
        if len(self.kinds) == 1:
            return [match.document for match in lists[self.kinds[0]]]
        weights = (self.fusion.dense, self.fusion.sparse)
        found = [[(match.document, match.score) for match in lists[kind]] for kind in self.kinds]
        return [document for document, _ in fuse(found, weights, self.fusion, self.rrf_k)]

    def sharing(self, dense: float) -> "Mode":
        """The same with this share of the dense list, the rest being the sparse one's."""
        fusion = msgspec.structs.replace(self.fusion, dense=dense, sparse=round(1 - dense, 6))
        return msgspec.structs.replace(self, fusion=fusion)


def mode(name: str, params: Params) -> Mode:
    """`dense`, `sparse`; `hybrid`, which fuses as `params` say; `weighted` with their normaliser, `weighted-rank` ...;
    `enhanced`, which is `hybrid` in two wordings; `rerank`, which is `hybrid` reordered by a cross-encoder.

    Raises:
        Invalid: there is none of this name.
    """
    if name not in NAMES:
        raise Invalid(f"there is no mode {name!r}", hint=f"there are {', '.join(NAMES)}")
    if name in ("dense", "sparse"):
        return Mode(name=name, kinds=(name,))  # type: ignore[arg-type] # one of the two
    fusion = params.fusion
    if name.startswith(WEIGHTED):
        normaliser = name.removeprefix(WEIGHTED).removeprefix("-") or fusion.normaliser
        fusion = msgspec.structs.replace(fusion, method="weighted", normaliser=normaliser)
    return Mode(
        name=name,
        kinds=("dense", "sparse"),
        fusion=fusion,
        rrf_k=params.rrf_k,
        reranks=name == RERANK,
        enhances=name == ENHANCED,
        enhance=params.enhance,
    )
