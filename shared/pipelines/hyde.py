"""hyde: searches by the mean vector of the question and of hypothetical documents (Gao et al. 2023)."""

import msgspec

from shared.params import Params
from shared.pipelines.registry import pipeline
from shared.rag.answering import answer
from shared.rag.provenance import choose_context, make_search, make_single_trace
from shared.rag.rewriting import draft_hypotheses, read_hypotheses
from shared.replies import require
from shared.samples import Library, Sample, Steps


@pipeline("hyde", reads=("candidates", "context_size", "dense", "duplicates", "generate", "hyde", "judge.per_repeat"))
def hyde(sample: Sample, params: Params, _library: Library) -> Steps:
    """Have the judge model write documents, search with them, then generate; with 0 documents it is `dense`."""
    written = draft_hypotheses(sample.question, params.hyde)
    hypotheses = read_hypotheses(sample.question, (yield written) if written else ())
    plain = make_search(sample.question, "dense", params)
    found = require((yield msgspec.structs.replace(plain, hypothetical=hypotheses.texts)))
    decisions = (hypotheses.decision(),) if written else ()
    trace = make_single_trace(found, "dense", params)
    trace = msgspec.structs.replace(trace, decisions=decisions + trace.decisions)
    return (yield from answer(sample.question, choose_context(trace, params), trace))
