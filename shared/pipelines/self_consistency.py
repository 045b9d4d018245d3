"""self-consistency: several sampled answers over the context of `hybrid`, and a majority vote (Wang et al. 2023)."""

from msgspec.structs import replace

from shared.contracts.calls import Generate
from shared.contracts.params import Params
from shared.contracts.replies import Generated, require
from shared.contracts.samples import Library, Sample, Steps
from shared.pipelines.registry import FUSED, pipeline
from shared.rag import voting
from shared.rag.answering import Shown, write
from shared.rag.graders import grader
from shared.rag.provenance import Found, answered, context, fused_trace, generation, searches


@pipeline(
    "self-consistency",
    reads=("candidates", "context_size", "duplicates", *FUSED, "generate.max_tokens", "self_consistency"),
)
def self_consistency(sample: Sample, params: Params, _library: Library) -> Steps:
    """Retrieve from both indexes, fuse, sample several answers, and take the one that most of them agree on."""
    dense, sparse = yield searches(sample.question, params)
    trace = fused_trace(Found(require(dense), require(sparse)), params)

    def prompts(shown: Shown) -> list[Generate]:
        prompt = generation(sample.question, shown.documents)
        prompt = replace(prompt, temperature=params.self_consistency.temperature)
        return [replace(prompt, draw=draw) for draw in range(params.self_consistency.draws)]

    written = yield from write(prompts, context(trace, params))
    texts = [reply for reply in written.replies if isinstance(reply, Generated)]
    if not texts:
        require(written.replies[0])
    found = [grader(params.grading.grader).extract(reply.text)[0] for reply in texts]
    answers = [answer for answer in found if answer is not None]

    pairs = voting.pairs(answers)
    verdicts = dict(zip(pairs, (yield [voting.comparison(pair) for pair in pairs]), strict=True))
    candidates = voting.candidates(answers, verdicts)
    elected = texts[found.index(candidates[0].answer)] if candidates else texts[0]
    decisions = (*trace.decisions, *written.decisions, *voting.decisions(candidates, verdicts, written.replies))
    return answered(elected, written.documents, replace(trace, decisions=decisions))
