"""dense: answers from the best documents by vector search, in that order (the MathRAG-Gate paper, section 3.1)."""

from shared.params import Params
from shared.pipelines.registry import pipeline
from shared.rag.answering import answer
from shared.rag.provenance import choose_context, make_search, make_single_trace
from shared.replies import require
from shared.samples import Library, Sample, Steps


@pipeline("dense", reads=("candidates", "context_size", "dense", "duplicates", "generate"))
def dense(sample: Sample, params: Params, _library: Library) -> Steps:
    """Retrieve from the dense index, then generate."""
    found = require((yield make_search(sample.question, "dense", params)))
    trace = make_single_trace(found, "dense", params)
    return (yield from answer(sample.question, choose_context(trace, params), trace))
