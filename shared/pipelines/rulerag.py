"""rulerag: rules whose head is the question's relation guide search and answer (RuleRAG-ICL, Hu et al. 2024).

Seed document 002; docs/how-to/rulerag.md.
"""

from collections.abc import Generator
from typing import Any

from msgspec.structs import replace

from shared.calls import Generate, Yielded
from shared.params import Params
from shared.pipelines.registry import FUSED, pipeline
from shared.rag.answering import Prompt, answer
from shared.rag.guidance import Guidance, find_guidance, note_prompt_rules, search_by_rules, search_index, write_rule
from shared.rag.prompts import localised
from shared.rag.provenance import choose_context
from shared.samples import Item, Library, Sample, Steps, Trace

READS = (
    *("candidates", "context_size", "duplicates", *FUSED, "generate.max_tokens", "generate.temperature"),
    *("judge.per_repeat", "rulerag", "rules", "seed"),
)


@pipeline("rulerag", reads=READS)
def rulerag(sample: Sample, params: Params, library: Library) -> Steps:
    """Find rules for the question, search for each, and show them to the generator; without rules, search for it."""
    guided = yield from find_guidance(sample.item, params)
    trace = yield from _search(sample.item, guided, params, library)
    trace = replace(trace, decisions=(guided.decision, *trace.decisions))
    if params.rulerag.use != "retrieval":
        sentences = dict.fromkeys(write_rule(found.rule, guided.phrases) for found in guided.rules)
        lines = "".join(f"{sentence}\n" for sentence in sentences)
    else:
        lines = ""
    prompt = _prompt(lines, cot=params.rulerag.cot)
    return (yield from answer(sample.question, choose_context(trace, params), trace, prompt=prompt))


def _search(item: Item, guided: Guidance, params: Params, library: Library) -> Generator[Yielded, Any, Trace]:
    if guided.rules and params.rulerag.use != "generation":
        return (yield from search_by_rules(item, guided, params, library))
    trace = yield from search_index(item.question, params)
    return replace(trace, decisions=(*note_prompt_rules(guided), *trace.decisions))


def _prompt(lines: str, *, cot: bool) -> Prompt:
    def generation(question: str, documents: tuple[str, ...], passage: str) -> Generate:
        template = localised("rulerag-cot", question) if cot else localised("rulerag", question)
        slots = {"rules": f"Rules:\n{lines}\n"} if lines else {}
        return Generate(template=template, question=question, context=documents, passage=passage, slots=slots)

    return generation
