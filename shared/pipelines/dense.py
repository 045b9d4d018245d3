"""dense: the best documents by vector search, as they come (the MathRAG-Gate paper, section 3.1)."""

from shared.contracts.calls import require
from shared.contracts.params import Params
from shared.contracts.samples import Library, Sample, Steps
from shared.pipelines.registry import pipeline
from shared.rag.provenance import answered, context, generation, search, single_trace


@pipeline("dense", reads=("candidates", "context_size", "generate"))
def dense(sample: Sample, params: Params, _library: Library) -> Steps:
    """Retrieve from the dense index, then generate."""
    found = require((yield search(sample.question, "dense", params)))
    trace = single_trace(found, "dense", params)
    chosen = context(trace, params)
    generated = require((yield generation(sample.question, chosen)))
    return answered(generated, chosen, trace)
