"""The modes of evaluation: one list as it is, or both of them fused as a job would."""

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from services.retriever.ports import IndexMatch
from shared.errors import Invalid
from shared.params import EnhanceParams, FusionParams, Params
from shared.rag.fusion import NORMALISERS, fuse

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
    """Describes a mode of search by everything that its ranking depends on."""

    name: str
    kinds: tuple[Kind, ...]
    """The lists that it needs."""
    fusion: FusionParams = FusionParams()
    rrf_k: int = 60
    reranks: bool = False
    """Whether a cross-encoder reorders the list at the end."""
    enhances: bool = False
    """Whether every query is also searched for in a second wording."""
    enhance: EnhanceParams = EnhanceParams()

    def rank(self, lists: Mapping[Kind, Sequence[IndexMatch]]) -> list[str]:
        """Rank the documents for one query, best first, from what each index found; nothing is reranked here."""
        if len(self.kinds) == 1:
            return [match.document for match in lists[self.kinds[0]]]
        weights = (self.fusion.dense, self.fusion.sparse)
        found = [[(match.document, match.score) for match in lists[kind]] for kind in self.kinds]
        return [document for document, _ in fuse(found, weights, self.fusion, self.rrf_k)]

    def with_dense_weight(self, dense: float) -> "Mode":
        """Return the mode with this weight of the dense list; the sparse list has the rest."""
        fusion = msgspec.structs.replace(self.fusion, dense=dense, sparse=round(1 - dense, 6))
        return msgspec.structs.replace(self, fusion=fusion)


def choose_mode(name: str, params: Params) -> Mode:
    """Return the mode called `name`.

    `hybrid` fuses as `params` say; `weighted` uses their normaliser, `weighted-rank` and the like their own. `enhanced`
    is `hybrid` in two wordings; `rerank` is `hybrid` reordered by a cross-encoder.

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
