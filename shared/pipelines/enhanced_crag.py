"""enhanced-crag: enhance, search in both indexes, evaluate, correct, rerank, compress (seed document 001).

All calls to the judge model come before the one generation, so that a batch loads each model once.
"""

from shared.params import CragParams, Params
from shared.pipelines.registry import ENHANCED, pipeline
from shared.rag.answering import finish
from shared.rag.crag import DocumentPool, choose_useful, correct, list_candidates
from shared.rag.retrieval import recall
from shared.samples import Library, Sample, Steps

EVALUATION = tuple(f"crag.{name}" for name in CragParams.__struct_fields__ if name not in ("strips", "top"))
"""Parameters of `crag` that correct a list; those of compression are left out, because `finish` compresses."""


@pipeline("enhanced-crag", reads=(*ENHANCED, *EVALUATION, "judge"), version=2)
def enhanced_crag(sample: Sample, params: Params, library: Library) -> Steps:
    """Retrieve by every wording, evaluate, correct, rerank, compress, then generate."""
    question = sample.question
    recalled = yield from recall(question, params, library)
    pools = yield from correct(DocumentPool.from_recall(question, recalled.lists, recalled.trace), params, library)
    internal, external = (pool.evaluate(params) for pool in pools)
    documents = dict.fromkeys([*choose_useful(internal, params), *choose_useful(external, params)])
    trace = list_candidates(pools.found, pools.other, params)
    return (yield from finish(question, tuple(documents), trace, params, library, vague=recalled.vague))
