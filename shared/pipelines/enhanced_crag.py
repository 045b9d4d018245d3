"""enhanced-crag: the flow of seed document 001: enhance, search in both indexes, evaluate, correct, rerank, compress.

What asks the judge model, from rewriting to evaluation, comes before the one generation, so that a batch takes two
loads.
"""

from shared.contracts.params import CragParams, Params
from shared.contracts.samples import Library, Sample, Steps
from shared.pipelines.registry import ENHANCED, pipeline
from shared.rag.correction import correct
from shared.rag.finishing import finish
from shared.rag.knowledge import candidates, of_use
from shared.rag.pool import Pool
from shared.rag.recall import recall

EVALUATION = tuple(f"crag.{name}" for name in CragParams.__struct_fields__ if name not in ("strips", "top", "order"))
"""What corrects a list; compression is done once, at the end."""


@pipeline("enhanced-crag", reads=(*ENHANCED, *EVALUATION, "judge"))
def enhanced_crag(sample: Sample, params: Params, library: Library) -> Steps:
    """Retrieve by every wording, evaluate, correct, rerank, compress, then generate."""
    question = sample.question
    recalled = yield from recall(question, params, library)
    pools = yield from correct(Pool.recalled(question, recalled.lists, recalled.trace), params, library)
    internal, external = (pool.evaluation(params) for pool in pools)
    documents = dict.fromkeys([*of_use(internal, params), *of_use(external, params)])
    trace = candidates(pools.found, pools.other, params)
    return (yield from finish(question, tuple(documents), trace, params, library, vague=recalled.vague))
