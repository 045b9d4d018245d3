"""sparse: the best documents by BM25, as they come (the MathRAG-Gate paper, section 3.1)."""

from shared.contracts.params import Params
from shared.contracts.replies import require
from shared.contracts.samples import Library, Sample, Steps
from shared.pipelines.registry import pipeline
from shared.rag.answering import answer
from shared.rag.provenance import context, search, single_trace


@pipeline("sparse", reads=("candidates", "context_size", "duplicates", "generate"))
def sparse(sample: Sample, params: Params, _library: Library) -> Steps:
    """Retrieve from the sparse index, then generate."""
    found = require((yield search(sample.question, "sparse", params)))
    trace = single_trace(found, "sparse", params)
    return (yield from answer(sample.question, context(trace, params), trace))
