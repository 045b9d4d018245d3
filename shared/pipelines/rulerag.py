"""rulerag: rules whose head is the question's relation guide search and answer (RuleRAG-ICL, Hu et al. 2024).

Seed document 002; docs/how-to/knowledge-graphs.md#rulerag.
"""

from msgspec.structs import replace

from shared.calls import Generate
from shared.params import Params
from shared.pipelines.registry import FUSED, pipeline
from shared.rag.answering import answer
from shared.rag.guidance import find_guidance, note_prompt_rules, search_by_rules, search_index, write_rule
from shared.rag.prompts import localise
from shared.rag.provenance import choose_context
from shared.samples import Library, Sample, Steps

READS = (
    *("candidates", "context_size", "duplicates", *FUSED, "generate.max_tokens", "generate.temperature"),
    *("judge.per_repeat", "rulerag", "rules", "seed"),
)


@pipeline("rulerag", reads=READS, version=2)
def rulerag(sample: Sample, params: Params, library: Library) -> Steps:
    """Find rules for the question, search for each, and show them to the generator; without rules, search for it."""
    guided = yield from find_guidance(sample.item, params)
    if guided.rules and params.rulerag.use != "generation":
        trace = yield from search_by_rules(sample.item, guided, params, library)
    else:
        trace = yield from search_index(sample.question, params)
        trace = replace(trace, decisions=(*note_prompt_rules(guided), *trace.decisions))
    trace = replace(trace, decisions=(guided.decision, *trace.decisions))
    sentences = dict.fromkeys(write_rule(found.rule, guided.phrases) for found in guided.rules)
    lines = "".join(f"{sentence}\n" for sentence in sentences) if params.rulerag.use != "retrieval" else ""

    def prompt(question: str, documents: tuple[str, ...], passage: str) -> Generate:
        template = localise("rulerag-cot", question) if params.rulerag.cot else localise("rulerag", question)
        slots = {"rules": f"Rules:\n{lines}\n"} if lines else {}
        return Generate(template=template, question=question, context=documents, passage=passage, slots=slots)

    return (yield from answer(sample.question, choose_context(trace, params), trace, prompt=prompt))
