"""self-consistency: several sampled answers over the context of `hybrid`, and a majority vote (Wang et al. 2023)."""

from msgspec.structs import replace

from shared.contracts.calls import Failure, Generated, require
from shared.contracts.params import Params
from shared.contracts.samples import Library, Sample, Steps
from shared.pipelines.registry import pipeline
from shared.rag import voting
from shared.rag.provenance import Found, answered, context, fused_trace, generation, searches


@pipeline("self-consistency")
def self_consistency(sample: Sample, params: Params, _library: Library) -> Steps:
    """Retrieve from both indexes, fuse, sample several answers, and take the one that most of them agree on."""
    dense, sparse = yield searches(sample.question, params)
    trace = fused_trace(Found(require(dense), require(sparse)), params)
    chosen = context(trace, params)

    prompt = replace(generation(sample.question, chosen), temperature=params.self_consistency.temperature)
    replies = yield [replace(prompt, draw=draw) for draw in range(params.self_consistency.draws)]
    failed = [reply for reply in replies if isinstance(reply, Failure)]
    if len(failed) == len(replies):
        require(failed[0])
    outcomes = [answered(reply, chosen, trace) for reply in replies if isinstance(reply, Generated)]
    answers = [outcome.answer for outcome in outcomes if outcome.answer is not None]

    pairs = voting.pairs(answers)
    verdicts = dict(zip(pairs, (yield [voting.comparison(pair) for pair in pairs]), strict=True))
    found = voting.candidates(answers, verdicts)
    elected = next(each for each in outcomes if not found or each.answer == found[0].answer)
    decisions = voting.decisions(found, verdicts, len(replies), failed)
    return replace(elected, trace=replace(trace, decisions=tuple(decisions)))
