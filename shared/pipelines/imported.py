"""imported: grades the answers of another system like those of every pipeline.

`mathrag job import` makes its jobs. No model is called unless a grader or a metric needs one.
"""

from shared.params import Params
from shared.pipelines.registry import pipeline
from shared.samples import (
    Decision,
    ExtractedBy,
    Extraction,
    Given,
    Library,
    Outcome,
    Sample,
    Steps,
    Trace,
    WrittenOutcome,
)

IMPORTED = "imported"
DRY_RUN = Given(
    text=" ".join(f"Sentence {n} [1]." for n in range(1, 7)),
    answer="?",
    contexts=tuple(f"{n:064x}" for n in range(Params().context_size)),
)
"""Answer that a dry run reads instead of a given one, so that it makes the calls of every metric."""


@pipeline(IMPORTED, reads=(), offered=False)
def imported(sample: Sample, _params: Params, _library: Library) -> Steps:
    """Return the given answer, or the given text, in which the grader finds the answer."""
    given = sample.given if isinstance(sample.given, Given) else DRY_RUN
    known = {name: getattr(given, name) for name in ("text", "score", "seconds", "prompt_tokens", "completion_tokens")}
    detail = {name: value for name, value in known.items() if value is not None}
    trace = Trace(decisions=(Decision(stage=IMPORTED, action="given", detail=detail),))
    context = given.contexts or ()
    if given.answer is not None:
        return Outcome(
            answer=given.answer,
            extraction=Extraction.OK,
            extracted_by=ExtractedBy.GIVEN,
            context=context,
            trace=trace,
        )
    return WrittenOutcome(
        answer=None, extraction=Extraction.MISSING, context=context, trace=trace, text=given.text or ""
    )
    yield  # makes this function a generator, as a pipeline has to be
