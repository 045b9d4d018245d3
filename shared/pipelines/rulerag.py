"""rulerag: rules that lead to the relation asked for guide search and answer (RuleRAG-ICL, Hu et al. 2024).

Seed document 002; docs/rulerag.md.
"""

from collections.abc import Generator
from typing import Any

from msgspec.structs import replace

from shared.contracts.calls import Generate, Yielded
from shared.contracts.params import Params
from shared.contracts.samples import Item, Library, Sample, Steps, Trace
from shared.pipelines.registry import FUSED, pipeline
from shared.rag.answering import Prompt, answer
from shared.rag.guidance import Guidance, guidance
from shared.rag.language import localised
from shared.rag.provenance import context
from shared.rag.rule_chains import index_search
from shared.rag.rule_lists import in_prompt, search_by_rules
from shared.rag.rule_sentences import rule_sentence

READS = (
    *("candidates", "context_size", "duplicates", *FUSED, "generate", "judge.per_repeat", "rulerag", "rules", "seed"),
)


@pipeline("rulerag", reads=READS)
def rulerag(sample: Sample, params: Params, library: Library) -> Steps:
    """Find rules for the question, search for each, and show them to the generator; without a rule it is plain."""
    guided = yield from guidance(sample.item, params)
    trace = yield from _searched(sample.item, guided, params, library)
    trace = replace(trace, decisions=(guided.decision, *trace.decisions))
    lines = _lines(guided) if params.rulerag.use != "retrieval" else ""
    prompt = _prompt(lines, cot=params.rulerag.cot)
    return (yield from answer(sample.question, context(trace, params), trace, prompt=prompt))


def _searched(item: Item, guided: Guidance, params: Params, library: Library) -> Generator[Yielded, Any, Trace]:
    if guided.rules and params.rulerag.use != "generation":
        return (yield from search_by_rules(item, guided, params, library))
    trace = yield from index_search(item.question, params)
    return replace(trace, decisions=(*in_prompt(guided), *trace.decisions))


def _lines(guided: Guidance) -> str:
    """The rules as the prompt shows them."""
    sentences = dict.fromkeys(rule_sentence(found.rule, guided.phrases) for found in guided.rules)
    return "".join(f"{sentence}\n" for sentence in sentences)


def _prompt(lines: str, *, cot: bool) -> Prompt:
    def generation(question: str, documents: tuple[str, ...], passage: str) -> Generate:
        template = localised("rulerag-cot", question) if cot else localised("rulerag", question)
        slots = {"rules": f"Rules:\n{lines}\n"} if lines else {}
        return Generate(template=template, question=question, context=documents, passage=passage, slots=slots)

    return generation
