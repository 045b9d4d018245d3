"""program-aided: the generator writes a SymPy program over `hybrid`'s context, and its output is the answer.

PAL (Gao et al. 2023, arXiv 2211.10435) and Program of Thoughts (Chen et al. 2022, arXiv 2211.12588).
"""

import re
from collections.abc import Generator
from textwrap import dedent
from typing import Any

from msgspec.structs import replace

from mathrag.reasoning import remove_reasoning
from shared.calls import Execute, Yielded
from shared.params import Params
from shared.pipelines.registry import FUSED, pipeline
from shared.rag.answering import answer, write
from shared.rag.prompts import localise
from shared.rag.provenance import (
    FoundLists,
    choose_context,
    make_fused_trace,
    make_generation,
    make_outcome,
    make_searches,
)
from shared.replies import Executed, Failure, Generated, require
from shared.samples import Decision, Library, Sample, Steps

PROGRAM = "program"
"""Stage of the decision that holds the program and its result."""
_BLOCK = re.compile(r"^[ \t]*```[ \t]*(\w*)[^\n]*\n(.*?)^[ \t]*```", re.DOTALL | re.MULTILINE)
LANGUAGES = ("", "python", "python3", "py")
"""How a block of code that is a program may be marked."""


@pipeline("program-aided", reads=("candidates", "context_size", "duplicates", *FUSED, "generate"))
def program_aided(sample: Sample, params: Params, _library: Library) -> Steps:
    """Retrieve from both indexes, fuse, and run a program that the generator writes; without its output, generate."""
    dense, sparse = yield make_searches(sample.question, params)
    trace = make_fused_trace(FoundLists(require(dense), require(sparse)), params)
    prompt = replace(make_generation(sample.question), template=localise("program", sample.question))
    written = yield from write(lambda shown: [replace(prompt, context=shown.documents)], choose_context(trace, params))
    text, decision = yield from _run_program(written.replies[0])
    trace = replace(trace, decisions=(*trace.decisions, *written.decisions, decision))
    if text:
        return make_outcome(Generated(text=text), written.documents, trace)
    return (yield from answer(sample.question, written.documents, trace))


def _run_program(written: Generated | Failure) -> Generator[Yielded, Any, tuple[str, Decision]]:
    """Run the last program of a text; return it with its output as an answer, or "", and the decision for the trace."""
    blocks = _BLOCK.findall(remove_reasoning(written.text)) if isinstance(written, Generated) else []
    programs = [code for language, code in blocks if language.lower() in LANGUAGES]
    if not programs:
        fallback = written.kind.value if isinstance(written, Failure) else "no_program"
        return "", Decision(stage=PROGRAM, action="none", fallback=fallback)
    program = dedent(programs[-1])
    reply: Executed | Failure = yield Execute(program=program)
    if isinstance(reply, Failure):
        said = reply.detail or reply.kind.value
        detail: dict[str, Any] = {"program": program, "said": said}
        return "", Decision(stage=PROGRAM, action="failed", detail=detail, fallback=reply.kind.value)
    text = f"```python\n{program}```\n\nThe answer is \\boxed{{{reply.output}}}."
    return text, Decision(stage=PROGRAM, action="run", detail={"text": text, "output": reply.output})
