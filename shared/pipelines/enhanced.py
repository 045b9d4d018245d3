"""enhanced: searches by several wordings, fuses all lists, reranks and compresses (seed document 001)."""

from shared.params import Params
from shared.pipelines.registry import ENHANCED, pipeline
from shared.rag.answering import finish
from shared.rag.retrieval import recall
from shared.samples import Library, Sample, Steps


@pipeline("enhanced", reads=ENHANCED)
def enhanced(sample: Sample, params: Params, library: Library) -> Steps:
    """Reword the question, retrieve by every wording, fuse, rerank, compress, then generate."""
    recalled = yield from recall(sample.question, params, library)
    trace = recalled.trace
    documents = [candidate.document for candidate in trace.candidates]
    return (yield from finish(sample.question, documents, trace, params, library, vague=recalled.vague))
