"""self-consistency: samples several answers over `hybrid`'s context and takes a majority vote (Wang et al. 2023)."""

from msgspec.structs import replace

from shared.calls import Generate
from shared.params import Params
from shared.pipelines.registry import FUSED, pipeline
from shared.rag import voting
from shared.rag.answering import PromptDocuments, write
from shared.rag.grading import get_grader
from shared.rag.provenance import (
    FoundLists,
    choose_context,
    make_fused_trace,
    make_generation,
    make_outcome,
    make_searches,
)
from shared.replies import Generated, require
from shared.samples import Decision, Library, Sample, Steps


@pipeline(
    "self-consistency",
    reads=(
        *("candidates", "context_size", "duplicates", *FUSED, "generate.max_tokens", "generate.template"),
        "self_consistency",
    ),
)
def self_consistency(sample: Sample, params: Params, _library: Library) -> Steps:
    """Retrieve from both indexes, fuse, sample several answers, and return the one with most votes."""
    by_probability = params.self_consistency.weights == "probability"
    dense, sparse = yield make_searches(sample.question, params)
    trace = make_fused_trace(FoundLists(require(dense), require(sparse)), params)

    def prompts(shown: PromptDocuments) -> list[Generate]:
        prompt = make_generation(sample.question, shown.documents)
        prompt = replace(prompt, temperature=params.self_consistency.temperature, logprobs=int(by_probability))
        return [replace(prompt, draw=draw) for draw in range(params.self_consistency.draws)]

    written = yield from write(prompts, choose_context(trace, params))
    texts = [reply for reply in written.replies if isinstance(reply, Generated)]
    if not texts:
        require(written.replies[0])
    found = [get_grader(params.grading.grader).extract(reply.text)[0] for reply in texts]
    answers = [answer for answer in found if answer is not None]
    voting_texts = [text for text, answer in zip(texts, found, strict=True) if answer is not None]
    weights = voting.weigh_texts(voting_texts) if by_probability else None

    pairs = voting.pair_answers(answers)
    verdicts = dict(zip(pairs, (yield [voting.make_comparison(pair) for pair in pairs]), strict=True))
    candidates = voting.count_votes(answers, verdicts, weights)
    elected = texts[found.index(candidates[0].answer)] if candidates else texts[0]
    votes = voting.describe_vote(candidates, verdicts, written.replies, weighed=by_probability)
    if by_probability and weights is None:
        votes.insert(0, Decision(stage="weights", action="count", fallback="no_log_probabilities"))
    decisions = (*trace.decisions, *written.decisions, *votes)
    return make_outcome(elected, written.documents, replace(trace, decisions=decisions))
