"""mine-rules: mines the rules of a graph for one head relation, which takes the place of the question.

`mathrag rules mine` makes its jobs; the bank is assembled from the calls' replies (`shared.runtime.mining`).
"""

from shared.calls import Mine
from shared.params import Params
from shared.pipelines.registry import pipeline
from shared.replies import Failure, Mined, SampleFailed, require
from shared.samples import Extraction, Library, Outcome, Sample, Steps

MINE_RULES = "mine-rules"


@pipeline(MINE_RULES, reads=("mining",), offered=False)
def mine_rules(sample: Sample, params: Params, _library: Library) -> Steps:
    """Mine the rules of one relation; the answer is their number."""
    if params.mining is None:
        raise SampleFailed("invalid", "the job has no `params.mining`: start it with `mathrag rules mine`")
    mined: Mined | Failure = yield Mine(relation=sample.question, mining=params.mining)
    return Outcome(answer=str(len(require(mined).rules)), extraction=Extraction.OK)
