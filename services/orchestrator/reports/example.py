"""Example of a report for the OpenAPI document; a test validates it against the schema."""

from typing import Any

_ACCURACY = {"value": 0.61, "low": 0.567, "high": 0.652, "items": 500, "correct": 305, "graded": 500}
_ANSWER_AT = {**_ACCURACY, "bootstrap": {"value": 0.61, "low": 0.566, "high": 0.652}}
_MODEL = {"name": "world-judge", "backend": "llama.cpp", "digest": "a2d1…", "version": "b6000"}
_MEAN = {"value": 0.47, "low": 0.44, "high": 0.5, "n": 500}
_HIGHER = {
    "value": 0.02,
    "low": 0.005,
    "high": 0.035,
    "p": 0.009,
    "adjusted": 0.009,
    "separable": True,
    "effect": 0.12,
    "n": 500,
}
_CONTAMINATION = {
    "items": 500, "affected": 1, "documents": 1, "share": 0.002,
    "among": {"value": 1.0, "low": 0.207, "high": 1.0, "items": 1, "correct": 1, "graded": 1},
    "others": {"value": 0.609, "low": 0.566, "high": 0.651, "items": 499, "correct": 304, "graded": 499},
}  # fmt: skip
_REPEATABILITY = {
    "documents": 3, "draws": 2, "temperature": 0.1, "same": {"value": 0.667, "low": 0.208, "high": 0.939},
    "agreement": 0.667, "difference": 0.333, "kappa": 0.933, "unrated": 0,
    "table": [[1, 0, 0, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 1, 1], [0, 0, 0, 0, 0]],
}  # fmt: skip
_DIFFERING = {"index": 17, "repeat": 0, "answer": "0.5", "gold": "\\frac{2}{4}", "math_verify": True, "strict": False}
_RETRIEVAL = {
    "items": 500,
    "absent": 0,
    "fused": {"nDCG@10": {**_MEAN, "value": 0.45}},
    "final": {"nDCG@10": _MEAN},
    "reranking": {"nDCG@10": _HIGHER},
    "context": _MEAN,
}
_GUIDED = {
    "bank": "kinship", "relations": {"named": 480, "none": 20}, "unguided": 20, "with_rules": _ACCURACY,
    "without_rules": _ACCURACY, "used": 1, "rules": [{
        "number": 12, "rule": "[Entity1, consult, Entity2] leads to [Entity1, make a visit, Entity2]",
        "certainty": 0.71, "samples": 480, "documents": 1440, "accuracy": _ACCURACY,
    }],
}  # fmt: skip
EXAMPLE: dict[str, Any] = {
    "id": "6b0c1e9e-5f0f-4c0e-9a55-3d0f4f0f6a11", "name": "first", "state": "completed", "reason": None,
    "seconds": 41.2, "created_at": "2026-11-21T08:00:00Z", "ended_at": "2026-11-21T08:00:41.2Z",
    "request_counts": {"total": 500, "completed": 500, "failed": 0, "cancelled": 0, "in_progress": 0, "unparsed": 0},
    "items": 500, "grader": "math", "accuracy": _ACCURACY, "score": None,
    "bootstrap": {"value": 0.61, "low": 0.566, "high": 0.652},
    "repeats": {"accuracies": [0.61], "items": 500, "mean": 0.61, "std": None},
    "strict": _ACCURACY, "answer_at": {"answer@5": _ANSWER_AT},
    "disagreements": 1, "differing": [_DIFFERING],
    "endings": {"correct": 305, "truncated": 2, "extraction": 1, "arithmetic": 61, "logic": 131},
    "contamination": _CONTAMINATION, "extraction": {"ok": 497, "missing": 3},
    "extracted_by": {"boxed": 480, "stated": 17}, "theirs": None,
    "failures": {}, "grading_failures": {}, "truncated": 2, "truncated_by": {"length": 2},
    "unscored": 0, "duplicates_dropped": 1, "refused": 0,
    "decisions": {"crag": {"ambiguous": 61, "correct": 402, "incorrect": 37}},
    "fallbacks": {"rewrite": {"timeout": 2}}, "guided": _GUIDED,
    "retrieval": _RETRIEVAL,
    "parse_failures": 4, "repeatability": _REPEATABILITY, "gate": None, "model_loads": 2, "model_calls": 3120,
    "calls_made": {"retrieve": 1000, "judge": 2620, "generate": 500, "grade": 480},
    "calls_reused": {"retrieve": 0, "judge": 0, "generate": 0, "grade": 0}, "calls_lapsed": 0,
    "stages": {"judge": {"made": 2620, "reused": 0, "executed": 2620, "seconds": 20.4, "device_s": 19.8,
                         "started_at": "2026-11-21T08:00:07Z", "ended_at": "2026-11-21T08:00:27.4Z",
                         "prompt_tokens": 402000, "completion_tokens": 26200}},
    "cost": {"made": 0.07602, "all": 0.07602, "models": {"world-judge": 0.07602}},
    "residencies": [{"epoch": 12, "device": "cpu:0", "models": ["world-judge"], "cause": "drained", "state": "closed",
                     "opened_at": "2026-11-21T08:00:06Z", "closed_at": "2026-11-21T08:00:28Z",
                     "memory_mib": {"world-judge": 41.5}}],
    "by_level": {"Level 1": _ACCURACY}, "by_subject": {"Algebra": _ACCURACY}, "notes": [],
    "settings": {"pipeline": "mathrag-gate", "pipeline_hash": "77ab…", "dataset": "math-500", "corpus": "math",
                 "limit": None, "repeats": 1, "reuse": "all", "params": {}, "models": {"judge": _MODEL}, "drawn": []},
}  # fmt: skip
