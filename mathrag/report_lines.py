"""Format a report, the rules of a sample and a verdict as lines of text."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from mathrag.formatting import (
    describe_difference,
    explain_missing_answers,
    format_accuracy,
    format_counts,
    format_figure,
    format_interval,
    take_last_line,
)

# The lines of a report: the accuracy, then reasons to doubt it, then the cost.

GRADERS = {"math": "math-verify", "last-number": "math-verify; the last number if no answer is marked"}
"""Names of graders next to a figure, if they differ from the setting."""
MATHEMATICAL = ("math", "math-dataset", "last-number")
"""Graders that compare values; their strict counterpart compares texts."""
SHOWN_RULES = 5
"""Largest number of rules that a report lists."""


def build_lines(found: Any) -> Iterator[tuple[str, object]]:
    """Yield the name and the value of each line; the caller skips lines without a value."""
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
    yield from list_metrics(found.get("metrics", {}), found.get("sufficiency", {}))
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
    yield "latency", format_latency(found["stages"], counts["completed"] + counts["failed"])
    yield "tokens", format_tokens(found["stages"])
    yield "prompt tokens", format_prompt_tokens(found.get("prompt_tokens", {}))
    yield "cost", format_cost(found["cost"])


def describe_score(found: Any) -> str | None:
    """Describe the mean score, for a grader that gives scores."""
    if found is None:
        return None
    mean = found["mean"]
    between = "" if mean["low"] is None else f" ({format_figure(mean['low'])} to {format_figure(mean['high'])})"
    return f"{found['name']}: {format_figure(mean['value'])}{between} [mean over {mean['n']} items, 95 %]"


def describe_their_scores(theirs: Any) -> str | None:
    """Describe the differences between the evaluation of an import and this job's grader."""
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
    """Yield the share of items with an answer in the first k documents, if it was measured."""
    for name, share in found.items():
        k = name.removeprefix("answer@")
        first = "first document" if k == "1" else f"first {k} documents"
        yield name, f"{format_accuracy(share)} [an answer in the {first}, Wilson 95 %]"


def list_metrics(metrics: Any, sufficiency: Any) -> Iterator[tuple[str, object]]:
    """Yield each metric's mean scores with intervals, the numbers of samples without a value, and the controls of the
    judge model.
    """
    for name, found in metrics.items():
        mean = found["mean"]
        between = "" if mean["low"] is None else f" ({mean['low']:.3f} to {mean['high']:.3f})"
        parts = ["none" if mean["value"] is None else f"{mean['value']:.3f}{between}, {mean['n']} items"]
        if found["not_applicable"]:
            parts.append(f"{sum(found['not_applicable'].values())} not applicable")
        if found["failed"]:
            parts.append(f"{found['failed']} failed: {found['worst']:.3f} to {found['best']:.3f} with them")
        controls = found["controls"] or {}
        ways = {way: controls.get(way) for way in ("swapped", "copied", "reversed")}
        if known := [f"{way} {value:.2f}" for way, value in ways.items() if value is not None]:
            parts.append(", ".join(known))
        # Older servers do not distinguish languages.
        by_language = found.get("languages", {}).items()
        parts += [f"{'Chinese' if each == 'zh' else 'others'} {mean['value']:.3f}" for each, mean in by_language]
        if found["auroc"] is not None:
            parts.append(f"AUROC {found['auroc']:.2f}")
        yield name, "; ".join(parts)
    yield "sufficiency", "; ".join(f"{name}: {format_counts(counts)}" for name, counts in sufficiency.items())


def describe_truncation(found: Any) -> str:
    """Return the number of truncated answers, and the causes if the token limit was not the only one."""
    by = found["truncated_by"]
    return f"{found['truncated']} truncated" + (f" ({format_counts(by)})" if by.keys() - {"length"} else "")


def describe_lapses(calls: int) -> str | None:
    """Return the number of calls that a kill interrupted; a call alone may compute other numbers than in a batch."""
    return (
        f"{calls}, which may have run twice; each was repeated alone, without other calls in the batch"
        if calls
        else None
    )


def describe_repeats(repeats: Any, accuracy: Any) -> str | None:
    """Describe the spread between repeats, which comes from sampling, and name its items unless it is over all."""
    if repeats["std"] is None:
        return None
    each = ", ".join("-" if value is None else f"{100 * value:.1f}" for value in repeats["accuracies"])
    items, every = repeats.get("items"), accuracy.get("items")  # older servers count neither
    over = "" if items in (None, every) else f"; over the {items} of {every} items with a verdict in every repeat"
    return f"{100 * repeats['mean']:.2f} %, std {100 * repeats['std']:.2f} [by repeat {each}{over}; not an interval]"


def describe_contamination(found: Any) -> str | None:
    """Compare the accuracy on items with near-duplicates in the corpus to the accuracy on the others."""
    if found is None:
        return None
    of = f"{found['affected']} of {found['items']} items ({100 * found['share']:.1f} %)"
    return f"{of}: accuracy {format_accuracy(found['among'])}; of the others {format_accuracy(found['others'])}"


def describe_repeatability(found: Any) -> str | None:
    """Return the share of documents that the judge rated the same when asked again."""
    if found is None or found["same"]["value"] is None:
        return None
    share, low, high = (100 * found["same"][part] for part in ("value", "low", "high"))
    of = f"the same rating for {share:.1f} % ({low:.1f} to {high:.1f}) of {found['documents']} documents"
    kappa = "" if found["kappa"] is None else f", kappa {found['kappa']:.3f}"
    return f"{of}, {found['difference']:.2f} steps apart{kappa}; temperature {found['temperature']:g}"


def describe_scoring_problems(found: Any) -> str:
    """Return the numbers of problems before the prompt was built."""
    parts = {
        "judge replies without a rating": found["parse_failures"],
        "samples unscored": found["unscored"],
        "near-duplicates dropped": found["duplicates_dropped"],
        "documents in prompts that almost repeat the question": found["decisions"].get("duplicates", {}).get("kept", 0),
    }
    return ", ".join(f"{count} {name}" for name, count in parts.items() if count)


def format_stage_counts(counts: dict[str, dict[str, int]]) -> str:
    """Return text such as "crag: ambiguous 61, correct 402; rewrite: rewritten 500"."""
    return "; ".join(f"{stage}: {format_counts(of)}" for stage, of in counts.items())


def list_guidance(found: Any) -> Iterator[tuple[str, object]]:
    """Yield the effect of rules, for a pipeline that uses them: a summary, then the most used rules."""
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
    """Yield measures of the retrieval, for a dataset that lists the relevant documents."""
    if found is None:
        return
    figures = {**found["final"], "Recall@context": found["context"]}
    means = ", ".join(f"{name} {format_figure(mean['value'])}" for name, mean in figures.items())
    yield "retrieval", f"{means}; {found['items']} items"
    if found["absent"]:
        yield "not in corpus", f"{found['absent']} relevant documents"
    name, test = next(iter(found["reranking"].items()), ("", None))
    if test and (test["value"] or test["low"]):
        yield "reranking", f"{name} {describe_difference(test)}"


def format_seconds(stages: Any) -> str:
    """Return the seconds of this job's own calls by stage."""
    return ", ".join(f"{role} {stage['seconds']:.1f}" for role, stage in stages.items() if stage["seconds"] is not None)


def format_latency(stages: Any, samples: int) -> str | None:
    """Return a sample's share of the calls' time by stage, including reused calls; None if no time is known."""
    known = {role: stage["device_s"] / samples for role, stage in stages.items() if samples and stage.get("device_s")}
    by_stage = ", ".join(f"{role} {seconds:.2g}" for role, seconds in known.items())
    return (
        f"{sum(known.values()):.2g} s a sample: {by_stage} [its share of the calls' time, reused ones included]"
        if known
        else None
    )


def format_tokens(stages: Any) -> str:
    """Return the tokens in and out of this job's own calls by role."""
    counts = {role: (stage.get("prompt_tokens"), stage.get("completion_tokens")) for role, stage in stages.items()}
    return ", ".join(f"{role} {asked} in, {said} out" for role, (asked, said) in counts.items() if asked is not None)


def format_prompt_tokens(models: Any) -> str:
    """Return the prompt tokens of this job's own calls by model: sent, and computed by its server."""
    parts = []
    for name, tokens in models.items():
        sent, computed = tokens["sent"], tokens["computed"]
        if sent is not None:
            known = "not reported by the server" if computed is None else f"{computed} ({computed / (sent or 1):.1%})"
            parts.append(f"{name} {sent} sent, computed {known}")
    return "; ".join(parts)


def format_cost(cost: Any) -> str | None:
    """Return the cost in US dollars of this job's own calls and of all calls that it uses; None if unknown."""
    known = {name: cost[name] for name in ("made", "all") if cost[name] is not None} if cost else {}
    return ", ".join(f"{name} calls {format_usd(usd)}" for name, usd in known.items()) or None


def format_usd(usd: float) -> str:
    """Return text such as `$12.30`; amounts below one dollar have six decimals."""
    return f"${usd:.2f}" if usd >= 1 else f"${usd:.6f}"


# Rules on one line: `prescribed(X, Z)`, with the variables X, Y, Z and then V3, V4.

VARIABLES = "XYZ"


def format_body(rule: Any) -> str:
    """Return the body of a rule, such as `prescribed(X, Z), contains(Z, Y)`."""
    return ", ".join(map(format_atom, rule["body"]))


def format_atom(said: Sequence[Any]) -> str:
    """Return a relation and its two terms, such as `treats(X, Y)`."""
    relation, subject, object_ = said
    return f"{relation}({_format_term(subject)}, {_format_term(object_)})"


def _format_term(term: int | str) -> str:
    if isinstance(term, str):
        return term
    return VARIABLES[term] if term < len(VARIABLES) else f"V{term}"


# The rules that guided a sample, and those that found a document.


def describe_rules(decisions: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield each rule's name and its text, with its certainty and its number of candidates."""
    for each in decisions:
        if each["stage"] == "rule":
            values = each["detail"]
            brought = f"{len(values['documents'])} documents" if "documents" in values else "only in the prompt"
            yield f"rule {int(values['number'])}", f"{values['rule']} ({values['certainty']:.3f}): {brought}"


def name_rules(candidate: Mapping[str, Any]) -> str:
    """Return the rules that found a candidate, such as "rule 3, rule 12"; empty if none did."""
    return ", ".join(name for name in candidate.get("paths") or () if name.startswith("rule "))


WORDS = {True: "right", False: "wrong", None: "none"}


def describe_verdict(verdict: Any) -> str:
    """Return text such as "math-verify right, strict wrong" or "wrong, score 0.4".

    Args:
        verdict: a grader's reply, in the form of the API's JSON.
    """
    if verdict["type"] == "graded":
        return f"math-verify {WORDS[verdict['math_verify']]}, strict {WORDS[verdict['strict']]}"
    strict, score = verdict.get("strict"), verdict.get("score")
    exact = "" if strict is None else f", strict {WORDS[strict]}"
    return f"{WORDS[verdict['correct']]}{exact}{'' if score is None else f', score {score:.3g}'}"
