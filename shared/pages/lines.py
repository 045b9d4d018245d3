"""Sentences about decisions, flips and replies."""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from mathrag.formatting import format_duration_range
from mathrag.report_lines import describe_verdict
from shared.replies import Failure, Generated, Graded, Marked, Rated, Relevance, Reply, Retrieved, Scored
from shared.samples import Decision, GateDecision, Strategy

# Describe what a method did for a sample in a sentence; a decision without a sentence is shown by its trace names.

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
    "floor judge not trusted": "The judge model failed the test of its relevance, so no document was left out as"
    " irrelevant.",
    "rerank threshold": "Reranking kept {kept} of {documents} documents, those of relevance {threshold} or more.",
    "rerank best": "No document reached relevance {threshold} (the best has {best}): the best {kept} stayed.",
    "rerank refuse": "No document reached relevance {threshold} (the best has {best}): the question was refused.",
    "rerank original order": "The documents stayed in the order in which they were found.",
    "compress compressed": "The context was compressed from {tokens before} to {tokens after} tokens ({dropped} of"
    " {sentences} sentences left out).",
    "compress unchanged": "The context was short enough and was not changed ({tokens before} tokens).",
    "context drop": "Document {document} did not fit into the prompt: {reason}.",
    "duplicates kept": "Document {document} was in the prompt although it almost repeats the question ({share} of the"
    " shingles are common): see whether it gives the answer away.",
    "dedupe dropped": "Documents with the same content as others were left out: {documents}.",
    "hyde mean": "The search used the mean vector of {texts} hypothetical documents.",
    "hyde plain": "No hypothetical document was written: the search used the question itself.",
    "clean cleaned": "The question was cleaned to: {question}",
    "synonyms widened": "The search was widened by: {synonyms}.",
    "refine rewritten": "The search was made again with another wording and found {new} more documents.",
    "refine deeper": "The search went deeper and found {new} more documents.",
    "external searched": "The other corpus was searched and gave {new} documents.",
    "external none": "The job has no other corpus to search.",
    "crag correct": "A document is relevant (confidence {confidence}, from {upper} on, by {evaluator}): what was found"
    " is refined.",
    "crag ambiguous": "It is not clear whether a document is relevant (confidence {confidence}, between {lower} and"
    " {upper}, by {evaluator}).",
    "crag incorrect": "No document is relevant (confidence {confidence}, below {lower}, by {evaluator}): what was found"
    " is left out.",
    "strips none": "No part of the documents was kept.",
    "critic generate": "The critic found {relevant} relevant documents (mean {mean}): the answer was written.",
    "critic rewrite": "The critic found {relevant} relevant documents (mean {mean}): the query was rewritten.",
    "critic continue": "The critic found {relevant} relevant documents (mean {mean}): the search continued.",
    "retrieve retrieve": "The model asked for documents (probability {probability}).",
    "retrieve cut": "The threshold of similarity cut {documents} documents from the list `{search}` (the best of them"
    " has {best}).",
    "retrieve answer": "The model asked for no documents (probability {probability}).",
    "passage score": "With document {document} the answer scores {total} (relevance {relevance}, support {support},"
    " utility {utility}).",
    "passage leave out": "Document {document} was left out: nothing was written after it.",
    "relation named": "The item of the dataset names the relation {relation}.",
    "relation phrase": "A phrase of the question names the relation {relation}.",
    "relation judge": "The judge model says that the question asks for the relation {relation}.",
    "relation none": "No rule of the bank {bank} leads to the relation of the question.",
    "rule search": "Rule {number} led to {documents}: {rule} (certainty {certainty}).",
    "rule prompt": "Rule {number} was in the prompt: {rule} (certainty {certainty}).",
    "imported given": "The answer was imported: how it was made is not known.",
    "measured given": "The answer is that of another job, which is measured here.",
    "question kept": "The question passed every check. Its answer is {answer}; the passages say: {quotations} It is"
    " answered without documents: {guessable}. Other documents with the answer: {also_in}. Share of its words that"
    " occur in the quotations: {overlap}.",
    "vote majority": "{candidates} different answers in {draws} draws: one has the majority.",
    "vote plurality": "{candidates} different answers in {draws} draws: one has the most votes.",
    "vote tie": "{candidates} different answers in {draws} draws: a tie, so the first of the best was taken.",
    "vote no answer": "None of {draws} draws has an answer.",
    "votes count": "Votes for the answer {answer}: {votes}.",
    "draw leave out": "A draw failed and was left out.",
    "program run": "The generator's program was run and gave {output}.",
    "program failed": "The generator's program gave no answer ({said}): the question was asked as in `hybrid`.",
    "program none": "The generator wrote no program: the question was asked as in `hybrid`.",
    "compare keep apart": "These answers could not be compared, so they were counted as different: {answers}.",
}
"""Sentences by stage and action; a name in braces stands for a value of the decision's detail."""
BY_ACTION = {
    "written": "{stage}: the judge model wrote: {queries}",
    "unchanged": "{stage}: the judge model did not change the question.",
    "original": "{stage}: the question was not changed.",
}
BY_STAGE = {
    "intent": "The question asks to {action}: lists by vectors count {dense}, lists by words {sparse}.",
    "question": "The question was left out: {action}.",
    "strips": "Of the documents {internal} of {internal of} pieces were kept, of the other corpus {external} of"
    " {external of}.",
}
"""Sentences that hold for every action of a stage."""
_HASH = re.compile(r"[0-9a-f]{64}")


def describe_decision(decision: Decision, names: Mapping[str, str]) -> str:
    """Describe the decision, its figures, and the reason for a fallback.

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
                more = f" and {len(value) - MAX_LISTED} more" if len(value) > MAX_LISTED else ""
                return ", ".join(self._word(each, names) for each in value[:MAX_LISTED]) + more if value else "none"
            case str() if _HASH.fullmatch(value):
                return names.get(value) or value[:12]
            case _:
                return str(value)


# Explain in words why devices flip.

CAUSES = {
    "first": "calls asked for its models first",
    "drained": "the resident models had no calls left",
    "released": "an operator released the device",
    "drain": "an operator drains the device",
    "cpu_stalled": "the resident models waited for searches or grades that made no progress",
    "away": "the server of the resident models did not answer",
    "online": "a chat waited for an answer",
    "aged": "a job had waited for longer than `device.max_wait_s`",
    "bounded": "the models had been resident for longer than `device.max_residency_s`",
    "retry": "the last attempt failed",
    "guard_stopped": "the guard had been stopped",
    "guard_restart": "the guard was restarted",
}


def explain_flip(flip: Any) -> str:
    """Return for example "world-judge, because the resident models had no calls left"."""
    models = ", ".join(flip["models"]) or "nothing"
    return f"{models}, because {CAUSES.get(flip['cause'], flip['cause'])}"


def describe_next_flip(flip: Any) -> str:
    """Return for example "42 calls left, then world-generator: flip in 2 to 4 min"."""
    if flip is None:
        return "No call waits for another model."
    models = f"{flip['waiting']:,} wait for {', '.join(flip['models'])}"
    if not flip["left"]:
        return f"{models}; the flip is due."
    left = f"{flip['left']:,} calls left for the resident models; {models}"
    if flip["high_s"] is None:
        return f"{left}. Too few calls ended in the last 30 s to estimate when."
    between = format_duration_range(flip["low_s"], flip["high_s"])
    return f"{left}: flip in {between}, or later if answers lead to more calls."


# Summarise the reply of a call in a few words.


def describe_relevance(reply: Relevance) -> str:
    """Return for example "relevance 0.731"; without log-probabilities it also says that."""
    return f"relevance {reply.probability:.3f}{'' if reply.labels else ', by its text alone'}"


def summarise_reply(reply: Reply | None, completion_tokens: int | None) -> str:
    """Return for example "10 documents", "rating 4" or "31 tokens"."""
    match reply:
        case None:
            return "no reply was used"
        case Failure():
            return f"{reply.kind.value}: {reply.detail}"
        case Retrieved():
            return f"{len(reply.hits)} documents"
        case Rated() | Relevance():
            return f"rating {reply.rating}" if isinstance(reply, Rated) else describe_relevance(reply)
        case Graded() | Marked():
            return describe_verdict(msgspec.to_builtins(reply))
        case Generated():
            ended = f", cut off: {reply.truncated_by or 'length'}" if reply.truncated else ""
            return f"{completion_tokens or '?'} tokens{ended}"
        case Scored():
            return f"{len(reply.scores)} scores"
        case _:
            return ", ".join(f"{name} {value}" for name, value in msgspec.structs.asdict(reply).items())


# Explain the gate's decision.


def explain_decision(decision: GateDecision) -> str:
    """Explain why this strategy was chosen, for a reader who does not know rho."""
    if not decision.asked:
        return f"The job sets who scores: {decision.strategy.value}. Nothing was calibrated."
    if 2 * decision.unparsed > decision.asked:
        return f"The judge gave no rating in {decision.unparsed} of {decision.asked} replies, so rules score instead."
    if decision.rho is None or not decision.reason.startswith("rho = "):
        return "There are too few data to trust rules here, so the judge scores every document."
    figures = f"rho = {decision.rho:.3f} on {len(decision.documents)} documents"
    if decision.strategy is Strategy.RULES:
        verdict = f"Rules agree with the judge well enough ({figures}, more than tau = {decision.tau:g}): rules score."
    else:
        little = f"Rules agree too little with the judge ({figures}, not more than tau = {decision.tau:g})"
        verdict = f"{little}: the judge scores."
    if decision.low is None or decision.high is None or not decision.low <= decision.tau <= decision.high:
        return verdict
    interval = f"the interval of rho, {decision.low:.3f} to {decision.high:.3f}"
    return f"{verdict} It is a close call: {interval}, contains tau."
