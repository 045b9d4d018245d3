"""crag: retrieved documents are evaluated, then refined, completed or replaced before the answer is generated.

Yan et al. 2024; diversity, rounds and fallbacks are those of seed document 001.
"""

from shared.params import Params
from shared.pipelines.registry import FUSED, pipeline
from shared.rag.answering import answer
from shared.rag.crag import DocumentPool, combine_pools, correct
from shared.rag.provenance import make_searches
from shared.replies import require
from shared.samples import Library, Sample, Steps


@pipeline(
    "crag",
    reads=(
        *("candidates", "context_size", "crag", "duplicates", "enhance.decoding", *FUSED),
        *("generate", "judge", "rerank.by"),
    ),
    version=2,
)
def crag(sample: Sample, params: Params, library: Library) -> Steps:
    """Retrieve from both indexes, evaluate, correct, then generate."""
    question = sample.question
    dense, sparse = yield make_searches(question, params)
    found = DocumentPool(question).add_round(require(dense), sparse, 0, params, library)
    corrected = yield from correct(found, params, library)
    knowledge = combine_pools(question, corrected.found, corrected.other, params, library)
    return (yield from answer(question, knowledge.documents, knowledge.trace, knowledge.show))
