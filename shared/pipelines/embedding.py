"""embedding: computes vectors of texts for batches of OpenAI's API. Nothing is generated."""

from shared.calls import Embed
from shared.params import Params
from shared.pipelines.registry import pipeline
from shared.replies import require
from shared.samples import Extraction, Library, Outcome, Sample, Steps, Texts

EMBEDDING = "embedding"
DRY_RUN = Texts(texts=("?",))


@pipeline(EMBEDDING, reads=(), offered=False)
def embedding(sample: Sample, _params: Params, _library: Library) -> Steps:
    """Compute all vectors in one step; they are read from the replies, not from the outcome."""
    given = sample.given if isinstance(sample.given, Texts) else DRY_RUN
    for reply in (yield [Embed(text=text) for text in given.texts]):
        require(reply)
    return Outcome(answer=None, extraction=Extraction.OK)
