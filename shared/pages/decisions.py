"""Describe what a method did for a sample in a sentence; a decision without a sentence is shown by its trace names."""

import re
from collections.abc import Mapping, Sequence

from shared.contracts.samples import Decision

Detail = Mapping[str, str | float | bool | list[str] | None]
MAX_LISTED = 5
"""Values of a list that a sentence shows."""
SENTENCES = {
    "route easy": "The question looks easy (hard with probability {probability}, below {threshold}): rules scored its"
    " documents.",
    "route hard": "The question does not look easy (hard with probability {probability}, threshold {threshold}): its"
    " documents were scored as the gate decided.",
    "floor floor": "{below} documents were less relevant than {floor} and were not scored.",
    "floor none": "No document was left out as irrelevant.",
    "rerank threshold": "Reranking kept {kept} of {documents} documents, those of relevance {threshold} or more.",
    "rerank best": "No document reached relevance {threshold} (the best has {best}): the best {kept} stayed.",
    "rerank refuse": "No document reached relevance {threshold} (the best has {best}): the question was refused.",
    "rerank original order": "The documents stayed in the order in which they were found.",
    "compress compressed": "The context was compressed from {tokens before} to {tokens after} tokens ({dropped} of"
    " {sentences} sentences left out).",
    "compress unchanged": "The context was short enough to stay as it was ({tokens before} tokens).",
    "context drop": "Document {document} did not fit into the prompt: {reason}.",
    "duplicates kept": "Document {document} stood in the prompt although it almost repeats the question ({share} of the"
    " shingles are common): see whether it gives the answer away.",
    "dedupe dropped": "Documents with the same content as others were left out: {documents}.",
    "hyde mean": "The search used the mean vector of {texts} hypothetical documents.",
    "hyde plain": "No hypothetical document was written: the search used the question itself.",
    "clean cleaned": "The question was cleaned to: {question}",
    "synonyms widened": "The search was widened by: {synonyms}.",
    "refine rewritten": "The search was made again with another wording and found {new} more documents.",
    "refine deeper": "The search went deeper and found {new} more documents.",
    "external searched": "The other corpus was searched and gave {new} documents.",
    "external none": "There is no other corpus to search.",
    "crag correct": "A document is relevant (confidence {confidence}, from {upper} on, by {evaluator}): what was found"
    " is refined.",
    "crag ambiguous": "It is not clear whether a document is relevant (confidence {confidence}, between {lower} and"
    " {upper}, by {evaluator}).",
    "crag incorrect": "No document is relevant (confidence {confidence}, below {lower}, by {evaluator}): what was found"
    " is left out.",
    "strips none": "No part of the documents was kept.",
    "critic generate": "The critic found {relevant} relevant documents (mean {mean}): the answer was written.",
    "critic rewrite": "The critic found {relevant} relevant documents (mean {mean}): the query was rewritten.",
    "critic continue": "The critic found {relevant} relevant documents (mean {mean}): the search went on.",
    "retrieve retrieve": "The model asked for documents (probability {probability}).",
    "retrieve answer": "The model asked for no documents (probability {probability}).",
    "passage score": "With document {document} the answer scores {total} (relevance {relevance}, support {support},"
    " utility {utility}).",
    "passage leave out": "Document {document} was left out: nothing was written after it.",
    "relation named": "The item of the dataset names the relation {relation}.",
    "relation phrase": "A phrase of the question names the relation {relation}.",
    "relation judge": "The judge model says that the question asks for the relation {relation}.",
    "relation none": "No rule of the bank {bank} leads to what the question asks for.",
    "rule search": "Rule {number} led to {documents}: {rule} (certainty {certainty}).",
    "rule prompt": "Rule {number} stood in the prompt: {rule} (certainty {certainty}).",
    "imported given": "The answer was imported: how it was made is not known.",
    "vote majority": "{candidates} different answers in {draws} draws: one has the majority.",
    "vote plurality": "{candidates} different answers in {draws} draws: one has the most votes.",
    "vote tie": "{candidates} different answers in {draws} draws: a tie, so the first of the best was taken.",
    "vote no answer": "None of {draws} draws has an answer.",
    "votes count": "Votes for the answer {answer}: {votes}.",
    "draw leave out": "A draw failed and was left out.",
    "compare keep apart": "These answers could not be compared, so they were counted as different: {answers}.",
}
"""Sentences by stage and action; a name in braces stands for a value of the decision's detail."""
BY_ACTION = {
    "written": "{stage}: the judge model wrote: {queries}",
    "unchanged": "{stage}: the judge model left the question as it is.",
    "original": "{stage}: the question stayed as it is.",
}
BY_STAGE = {
    "intent": "The question asks to {action}: lists by vectors count {dense}, lists by words {sparse}.",
    "strips": "Of the documents {internal} of {internal of} pieces were kept, of the other corpus {external} of"
    " {external of}.",
}
"""Sentences that hold for every action of a stage."""
_HASH = re.compile(r"[0-9a-f]{64}")


def describe_decision(decision: Decision, names: Mapping[str, str]) -> str:
    """Describe what was done, the figures it followed from, and why a fallback was used.

    `names` maps hashes of documents to their names.
    """
    stage, action = decision.stage, decision.action
    known = SENTENCES.get(f"{stage} {action}") or BY_ACTION.get(action) or BY_STAGE.get(stage)
    words = _DetailWords({"stage": stage.capitalize(), "action": action, **decision.detail}, names)
    text = known.format_map(words) if known else words.list_all(stage, action)
    again = f"Round {decision.round}: " if decision.round else ""
    return f"{again}{text}{f' Fallback: {decision.fallback}.' if decision.fallback else ''}"


class _DetailWords(dict[str, str]):
    """The detail of a decision in words; a missing value reads "not known"."""

    def __init__(self, detail: Detail, names: Mapping[str, str]) -> None:
        super().__init__({name: self._word(value, names) for name, value in detail.items()})

    def __missing__(self, _: str) -> str:
        return "not known"

    def list_all(self, stage: str, action: str) -> str:
        """Describe a decision that has no sentence: every value under its name."""
        detail = ", ".join(f"{name} {word}" for name, word in self.items() if name not in ("stage", "action"))
        return f"{stage.capitalize()}: {action}{f' ({detail})' if detail else ''}."

    def _word(self, value: object, names: Mapping[str, str]) -> str:
        match value:
            case None:
                return "not known"
            case bool():
                return "yes" if value else "no"
            case float():
                return f"{value:.3g}"
            case list():
                return self._list(value, names)
            case str() if _HASH.fullmatch(value):
                return names.get(value) or value[:12]
            case _:
                return str(value)

    def _list(self, values: Sequence[str], names: Mapping[str, str]) -> str:
        more = f" and {len(values) - MAX_LISTED} more" if len(values) > MAX_LISTED else ""
        return ", ".join(self._word(each, names) for each in values[:MAX_LISTED]) + more if values else "none"
