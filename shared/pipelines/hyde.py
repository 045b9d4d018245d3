"""hyde: the best documents by the mean vector of the question and of hypothetical documents (Gao et al. 2023)."""

import msgspec

from shared.contracts.params import Params
from shared.contracts.replies import require
from shared.contracts.samples import Library, Sample, Steps
from shared.pipelines.registry import pipeline
from shared.rag.answering import answer
from shared.rag.hyde import drafts, hypotheses
from shared.rag.provenance import context, search, single_trace


@pipeline("hyde", reads=("candidates", "context_size", "duplicates", "generate", "hyde", "judge.per_repeat"))
def hyde(sample: Sample, params: Params, _library: Library) -> Steps:
    """Have the judge model write what could be found, search with it, then generate; with 0 documents it is `dense`."""
    written = drafts(sample.question, params.hyde)
    made_up = hypotheses(sample.question, (yield written) if written else ())
    plain = search(sample.question, "dense", params)
    found = require((yield msgspec.structs.replace(plain, hypothetical=made_up.texts)))
    decisions = (made_up.decision(),) if written else ()
    trace = single_trace(found, "dense", params)
    trace = msgspec.structs.replace(trace, decisions=decisions + trace.decisions)
    return (yield from answer(sample.question, context(trace, params), trace))
