"""hybrid: dense and sparse lists fused by reciprocal rank (the MathRAG-Gate paper, section 3.1)."""

from shared.contracts.params import Params
from shared.contracts.replies import require
from shared.contracts.samples import Library, Sample, Steps
from shared.pipelines.registry import FUSED, pipeline
from shared.rag.answering import answer
from shared.rag.provenance import Found, context, fused_trace, searches


@pipeline("hybrid", reads=("candidates", "context_size", "duplicates", *FUSED, "generate"))
def hybrid(sample: Sample, params: Params, _library: Library) -> Steps:
    """Retrieve from both indexes, fuse, then generate."""
    dense, sparse = yield searches(sample.question, params)
    found = Found(require(dense), require(sparse))
    trace = fused_trace(found, params)
    return (yield from answer(sample.question, context(trace, params), trace))
