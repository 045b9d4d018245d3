"""closed-book: the generator answers without documents, as the baseline that retrieval has to beat."""

from shared.params import Params
from shared.pipelines.registry import pipeline
from shared.rag.provenance import make_generation, make_outcome
from shared.replies import require
from shared.samples import Library, Sample, Steps


@pipeline("closed-book", reads=("generate",))
def closed_book(sample: Sample, _params: Params, _library: Library) -> Steps:
    """Generate without documents."""
    generated = require((yield make_generation(sample.question)))
    return make_outcome(generated)
