"""measured: grades and measures the answers of a job that has ended.

`mathrag job measure` makes its jobs. An equal answer was graded before, so the judge model is asked for metrics alone.
"""

from msgspec.structs import replace

from shared.params import Params
from shared.pipelines.imported import DRY_RUN
from shared.pipelines.registry import pipeline
from shared.samples import Decision, Extraction, Given, Library, Outcome, Sample, Steps, Trace

MEASURED = "measured"


@pipeline(MEASURED, reads=(), offered=False)
def measured(sample: Sample, _params: Params, _library: Library) -> Steps:
    """Return the outcome of the other job's sample; its trace stays there."""
    given = sample.given if isinstance(sample.given, Given) else DRY_RUN
    outcome = given.outcome or Outcome(answer=given.answer, extraction=Extraction.OK)
    trace = Trace(decisions=(Decision(stage=MEASURED, action="given", detail={"text": given.reply}),))
    return replace(outcome, context=given.contexts or (), trace=trace)
    yield  # makes this function a generator, as a pipeline has to be
