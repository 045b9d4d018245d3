"""hybrid: answers from dense and sparse lists fused by reciprocal rank (the MathRAG-Gate paper, section 3.1)."""

from shared.params import Params
from shared.pipelines.registry import FUSED, pipeline
from shared.rag.answering import answer
from shared.rag.provenance import FoundLists, choose_context, make_fused_trace, make_searches
from shared.replies import require
from shared.samples import Library, Sample, Steps


@pipeline("hybrid", reads=("candidates", "context_size", "duplicates", *FUSED, "generate"))
def hybrid(sample: Sample, params: Params, _library: Library) -> Steps:
    """Retrieve from both indexes, fuse, then generate."""
    dense, sparse = yield make_searches(sample.question, params)
    found = FoundLists(require(dense), require(sparse))
    trace = make_fused_trace(found, params)
    return (yield from answer(sample.question, choose_context(trace, params), trace))
