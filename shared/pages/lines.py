"""Lines of reports, rules, decisions, flips and replies, as text."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from shared.calls import MATHEMATICAL
from shared.pages.formatting import (
    describe_difference,
    explain_missing_answers,
    format_accuracy,
    format_counts,
    format_duration_range,
    format_figure,
    format_interval,
    take_last_line,
)
from shared.replies import Failure, Generated, Graded, Marked, Rated, Relevance, Reply, Retrieved, Scored
from shared.samples import Decision, GateDecision, Strategy

# Write a report as lines: first the accuracy, then what may be wrong with it, then what it cost.

GRADERS = {"math": "math-verify", "last-number": "math-verify; the last number where no answer is marked"}
"""Names of graders beside a figure, where they differ from the setting."""
SHOWN_RULES = 5
"""Rules that a report lists."""


def build_lines(found: Any) -> Iterator[tuple[str, object]]:
    """Yield the name and the value of each line; a line without a value is not shown."""
    counts = found["request_counts"]
    yield "reason", take_last_line(found["reason"])
    yield "samples", f"{counts['completed']} completed, {counts['failed']} failed, of {counts['total']}"
    yield "warning", explain_missing_answers(found["extraction"], found["accuracy"])
    grader = GRADERS.get(found["grader"], found["grader"])
    yield "accuracy", f"{format_accuracy(found['accuracy'])} [{grader}, Wilson 95 %]"
    yield "score", describe_score(found["score"])
    yield "bootstrap", found["bootstrap"] and f"{format_interval(found['bootstrap'])} [over items, 95 %]"
    yield "repeats", describe_repeats(found["repeats"], found["accuracy"])
    yield "strict", describe_strict_accuracy(found)
    yield from list_answer_ranks(found["answer_at"])
    yield "endings", format_counts(found["endings"])
    yield "contamination", describe_contamination(found["contamination"])
    yield "extraction", found["extraction"] and f"{format_counts(found['extraction'])}; {describe_truncation(found)}"
    yield "found by", format_counts(found["extracted_by"])
    yield "their scores", describe_their_scores(found["theirs"])
    yield "failures", format_counts({**found["failures"], **found["grading_failures"]})
    yield "refused", found["refused"] or None
    yield "scoring", describe_scoring_problems(found)
    yield "decisions", format_stage_counts(found["decisions"])
    yield "fallbacks", format_stage_counts(found["fallbacks"])
    yield from list_guidance(found.get("guided"))
    yield from list_retrieval(found["retrieval"])
    yield "judge again", describe_repeatability(found["repeatability"])
    yield "gate", found["gate"] and found["gate"]["reason"]
    yield "relevance", ((found["gate"] or {}).get("relevance") or {}).get("reason")
    yield "model loads", found["model_loads"]
    yield "model calls", found["model_calls"]
    yield "calls made", format_counts(found["calls_made"]) or "none"
    yield "calls reused", format_counts(found["calls_reused"]) or "none"
    yield "calls lapsed", describe_lapses(found["calls_lapsed"])
    yield "seconds", format_seconds(found["stages"])
    yield "tokens", format_tokens(found["stages"])
    yield "cost", format_cost(found["cost"])


def describe_score(found: Any) -> str | None:
    """Describe the mean score, for a grader that gives scores."""
    if found is None:
        return None
    mean = found["mean"]
    between = "" if mean["low"] is None else f" ({format_figure(mean['low'])} to {format_figure(mean['high'])})"
    return f"{found['name']}: {format_figure(mean['value'])}{between} [mean over {mean['n']} items, 95 %]"


def describe_their_scores(theirs: Any) -> str | None:
    """Describe where the evaluation that an import came with differs from this job's grader."""
    if theirs is None:
        return None
    said = f"right in {theirs['right']} of {theirs['scored']}; this job's grader differs on {theirs['differing']}"
    return f"{said} (items {', '.join(map(str, theirs['samples']))})" if theirs["differing"] else said


def describe_strict_accuracy(found: Any) -> str | None:
    """Describe the accuracy by the second grader: the strict rules of mathematics, or exact match."""
    if found["strict"]["graded"] == 0 and found["accuracy"]["graded"]:
        return None
    other = "" if found["grader"] in MATHEMATICAL else " [exact match]"
    return f"{format_accuracy(found['strict'])}{other}; the graders differ on {found['disagreements']}"


def list_answer_ranks(found: Any) -> Iterator[tuple[str, object]]:
    """Yield how often an answer occurs in the first k documents, where that was measured."""
    for name, share in found.items():
        k = name.removeprefix("answer@")
        first = "first document" if k == "1" else f"first {k} documents"
        yield name, f"{format_accuracy(share)} [an answer in the {first}, Wilson 95 %]"


def describe_truncation(found: Any) -> str:
    """Return how many answers were truncated, and the cause where it was not the token limit alone."""
    by = found["truncated_by"]
    return f"{found['truncated']} truncated" + (f" ({format_counts(by)})" if by.keys() - {"length"} else "")


def describe_lapses(calls: int) -> str | None:
    """Return how many calls were cut off by a kill; alone, a call may compute other numbers than in a batch."""
    return f"{calls}, which may have run twice; each ran again alone, with no call beside it" if calls else None


def describe_repeats(repeats: Any, accuracy: Any) -> str | None:
    """Describe the spread between repeats, which comes from sampling, and over which items it is if not over all."""
    if repeats["std"] is None:
        return None
    each = ", ".join("-" if value is None else f"{100 * value:.1f}" for value in repeats["accuracies"])
    items, every = repeats.get("items"), accuracy.get("items")  # older servers count neither
    over = "" if items in (None, every) else f"; over the {items} of {every} items with a verdict in every repeat"
    return f"{100 * repeats['mean']:.2f} %, std {100 * repeats['std']:.2f} [by repeat {each}{over}; not an interval]"


def describe_contamination(found: Any) -> str | None:
    """Compare the accuracy on items with near-duplicates in the corpus to that on the others."""
    if found is None:
        return None
    of = f"{found['affected']} of {found['items']} items ({100 * found['share']:.1f} %)"
    return f"{of}: accuracy {format_accuracy(found['among'])}; of the others {format_accuracy(found['others'])}"


def describe_repeatability(found: Any) -> str | None:
    """Return how often the judge gave the same rating when it was asked again."""
    if found is None or found["same"]["value"] is None:
        return None
    share, low, high = (100 * found["same"][part] for part in ("value", "low", "high"))
    of = f"the same rating for {share:.1f} % ({low:.1f} to {high:.1f}) of {found['documents']} documents"
    kappa = "" if found["kappa"] is None else f", kappa {found['kappa']:.3f}"
    return f"{of}, {found['difference']:.2f} steps apart{kappa}; temperature {found['temperature']:g}"


def describe_scoring_problems(found: Any) -> str:
    """Count what went wrong before the prompt was built."""
    parts = {
        "judge replies without a rating": found["parse_failures"],
        "samples unscored": found["unscored"],
        "near-duplicates dropped": found["duplicates_dropped"],
        "documents in prompts that almost repeat the question": found["decisions"].get("duplicates", {}).get("kept", 0),
    }
    return ", ".join(f"{count} {name}" for name, count in parts.items() if count)


def format_stage_counts(counts: dict[str, dict[str, int]]) -> str:
    """Return for example "crag: ambiguous 61, correct 402; rewrite: rewritten 500"."""
    return "; ".join(f"{stage}: {format_counts(of)}" for stage, of in counts.items())


def list_guidance(found: Any) -> Iterator[tuple[str, object]]:
    """Yield what rules did for a pipeline that looks for them: a summary, then the most used rules."""
    if found is None:
        return
    summary = f"{found['used']} of {found['bank'] or 'no bank'}: {format_accuracy(found['with_rules'])}"
    if found["unguided"]:
        summary += f"; {found['unguided']} without a rule: {format_accuracy(found['without_rules'])}"
    yield "rules", summary
    for each in found["rules"][:SHOWN_RULES]:
        did = f"{each['samples']} samples, {each['documents']} documents, {format_accuracy(each['accuracy'])}"
        yield f"rule {each['number']}", f"{each['rule']} ({each['certainty']:.3f}): {did}"


def list_retrieval(found: Any) -> Iterator[tuple[str, object]]:
    """Yield how good the documents were, for a dataset that lists the relevant ones."""
    if found is None:
        return
    figures = {**found["final"], "Recall@context": found["context"]}
    means = ", ".join(f"{name} {format_figure(mean['value'])}" for name, mean in figures.items())
    yield "retrieval", f"{means}; {found['items']} items"
    if found["absent"]:
        yield "not in corpus", f"{found['absent']} relevant documents"
    name = next(iter(found["final"]))
    if (test := found["reranking"].get(name)) and (test["value"] or test["low"]):
        yield "reranking", f"{name} {describe_difference(test)}"


def format_seconds(stages: Any) -> str:
    """Return the seconds by stage, of the calls that this job made."""
    return ", ".join(f"{role} {stage['seconds']:.1f}" for role, stage in stages.items() if stage["seconds"] is not None)


def format_tokens(stages: Any) -> str:
    """Return the tokens in and out by role, of the calls that this job made."""
    counts = {role: (stage.get("prompt_tokens"), stage.get("completion_tokens")) for role, stage in stages.items()}
    return ", ".join(f"{role} {asked} in, {said} out" for role, (asked, said) in counts.items() if asked is not None)


def format_cost(cost: Any) -> str | None:
    """Return the cost in US dollars of the calls that this job made and of all calls that it uses; None if unknown."""
    known = {name: cost[name] for name in ("made", "all") if cost[name] is not None} if cost else {}
    return ", ".join(f"{name} calls {format_usd(usd)}" for name, usd in known.items()) or None


def format_usd(usd: float) -> str:
    """Return for example `$12.30`; amounts below one dollar have six decimals."""
    return f"${usd:.2f}" if usd >= 1 else f"${usd:.6f}"


# Write a rule on one line: `prescribed(X, Z)`, with the variables X, Y, Z and then V3, V4.

VARIABLES = "XYZ"


def format_body(rule: Any) -> str:
    """Return what must hold, such as `prescribed(X, Z), contains(Z, Y)`."""
    return ", ".join(map(format_atom, rule["body"]))


def format_atom(said: Sequence[Any]) -> str:
    """Return a relation and its two terms, such as `treats(X, Y)`."""
    relation, subject, object_ = said
    return f"{relation}({_format_term(subject)}, {_format_term(object_)})"


def _format_term(term: int | str) -> str:
    if isinstance(term, str):
        return term
    return VARIABLES[term] if term < len(VARIABLES) else f"V{term}"


# Show the rules that guided a sample, and which of them found a document.


def describe_rules(decisions: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield each rule's name and its text, with its certainty and how many candidates it found."""
    for each in decisions:
        if each["stage"] == "rule":
            values = each["detail"]
            brought = f"{len(values['documents'])} documents" if "documents" in values else "in the prompt alone"
            yield f"rule {int(values['number'])}", f"{values['rule']} ({values['certainty']:.3f}): {brought}"


def name_rules(candidate: Mapping[str, Any]) -> str:
    """Return the rules that found a candidate, such as "rule 3, rule 12"; empty if none did."""
    return ", ".join(name for name in candidate.get("paths") or () if name.startswith("rule "))


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
    "online": "somebody waited online for an answer",
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

WORDS = {True: "right", False: "wrong", None: "none"}


def describe_verdict(verdict: Any) -> str:
    """Return for example "math-verify right, strict wrong" or "wrong, score 0.4".

    Args:
        verdict: a grader's reply as the API's JSON has it.
    """
    if verdict["type"] == "graded":
        return f"math-verify {WORDS[verdict['math_verify']]}, strict {WORDS[verdict['strict']]}"
    strict, score = verdict.get("strict"), verdict.get("score")
    exact = "" if strict is None else f", strict {WORDS[strict]}"
    return f"{WORDS[verdict['correct']]}{exact}{'' if score is None else f', score {score:.3g}'}"


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
