"""Examples of the larger answers, whole: a test holds each against its schema."""

from typing import Any

from services.orchestrator.api.submissions import EXAMPLE as SUBMISSION

Example = dict[str, Any]

ID = "6b0c1e9e-5f0f-4c0e-9a55-3d0f4f0f6a11"
BEGAN, RAN, ENDED = "2026-11-21T08:00:00Z", "2026-11-21T08:00:07Z", "2026-11-21T08:00:41.2Z"
DOCUMENT = "9f2c61a5c2b0d7f64b1f0e6a4a7d8e9bb7c6f5e4d3c2b1a0918273645546372a"
KEY = "41be07c3a2d9586f7e1b0c4d5a6978879605a4b3c2d1e0f9182736455463728f"
PARAMS: Example = {
    "candidates": 10, "context_size": 1, "rrf_k": 60, "rrf_weight": 0.1, "quality_weight": 0.9,
    "gate": {"tau": 0.45, "items": 50, "top": 5, "max_documents": 200, "min_pairs": 30, "on_unusable": "fail"},
    "generate": {"temperature": 0.0, "max_tokens": 512}, "judge": {"temperature": 0.1, "max_tokens": 10},
    "anchors": {}, "seed": 0,
}  # fmt: skip

JOB: Example = {
    **SUBMISSION, "params": PARAMS,
    "id": ID, "state": "running", "reuse": "all", "rank": 100, "version": 2, "requeued_from": None, "reason": None,
    "request_counts": {"total": 500, "completed": 120, "failed": 0, "cancelled": 0, "in_progress": 380, "unparsed": 0},
    "stages": {"judge": {"done": 4100, "total": 4100}, "generate": {"done": 120, "total": 500}},
    "created_at": BEGAN, "running_at": RAN, "ended_at": None, "eta_seconds": 95, "chain": None,
    "reached": {"preparing": BEGAN, "running": RAN},
    "gate": {"strategy": "judge", "reason": "rho = 0.312 <= tau = 0.45: judge", "tau": 0.45, "rho": 0.312,
             "low": 0.17, "high": 0.44, "pairs": 171, "asked": 173, "unparsed": 2},
    "links": {
        "self": f"/v1/jobs/{ID}",
        **{part: f"/v1/jobs/{ID}/{part}" for part in ("events", "samples", "results", "report", "provenance")},
    },
}  # fmt: skip

SAMPLE: Example = {
    "index": 0, "repeat": 0, "custom_id": "test/algebra/12", "question": "What is $2+3$?", "gold": "5",
    "subject": "Algebra", "level": "Level 1", "state": "completed", "answer": "5", "extraction": "ok",
    "truncated": False, "correct": True, "strict": True, "grading_failure": None, "failure": None, "detail": None,
    "context": [DOCUMENT], "duplicates": 0, "unscored": False, "ended_at": ENDED, "ending": "correct",
    "ending_reason": "math-verify", "score": None,
}  # fmt: skip

RESULT: Example = {
    **SAMPLE, "text": "So it is $\\boxed{5}$.", "prompt": None, "judged": [DOCUMENT], "ratings": [4],
    "prompt_tokens": 120, "completion_tokens": 31, "seconds": 1.7,
}  # fmt: skip
PROVENANCE: Example = {
    **{field: SAMPLE[field] for field in (
        "index", "repeat", "custom_id", "question", "gold", "subject", "level", "state", "failure", "detail",
        "ended_at", "ending", "ending_reason",
    )},
    "gold_documents": None, "record_hash": KEY, "item_hash": KEY, "gold_hash": KEY, "pipeline_hash": KEY,
    "decision_hash": None, "code": {"version": "0.1.0", "commit": "810c6c7"},
    "fusion": {"rrf_k": 60, "tie_break": "document hash"},
    "link": {"sequence": 0, "hash": KEY, "previous": DOCUMENT},
    "outcome": {"answer": "5", "extraction": "ok", "context": [DOCUMENT]}, "text": "So it is $\\boxed{5}$.",
    "steps": [{
        "position": 0, "slot": 0, "created": True, "source": None, "role": "generate", "key": KEY,
        "model": "world-generator", "model_hash": KEY, "backend": "llama.cpp", "digest": "c0ffee…", "version": "b6000",
        "options": {"context": 1024}, "request": {"role": "generate"},
        "sent": {"temperature": 0.0, "max_tokens": 512, "seed": 1092}, "queued_at": RAN, "queue_ms": 12.5,
        "attempt": {
            "outcome": "value", "reply": {"type": "generated", "text": "So it is $\\boxed{5}$."},
            "worker": "generator-1", "device": "cpu:0", "epoch": 12, "started_at": RAN, "ended_at": ENDED,
            "concurrency": 8, "prompt_hash": KEY, "prompt_tokens": 96, "completion_tokens": 12, "finish_reason": "stop",
            "prompt_ms": 8.1, "completion_ms": 14.9, "trace_id": None, "stored_at": ENDED, "reply_hash": KEY,
        },
        "other_attempts": [],
    }],
    "documents": {DOCUMENT: {"problem": "What is $2+2$?", "text": "Therefore \\boxed{4}."}},
    "residencies": [{"epoch": 12, "device": "cpu:0", "models": ["world-generator"], "cause": "drained",
                     "state": "open", "opened_at": RAN, "closed_at": None, "memory_mib": {"world-generator": 96.4}}],
}  # fmt: skip

_CELL: Example = {
    "index": 0, "dataset": "math-500", "corpus": "math", "variant": "dense", "pipeline": "dense",
    "point": {"context_size": 1}, "seed": 0, "job": ID, "job_name": "gate-or-not-dense-1", "state": "completed",
    "refused": None,
}  # fmt: skip
_COUNTS: Example = {
    "total": 500, "completed": 500, "failed": 0, "cancelled": 0, "in_progress": 0, "unparsed": 0,
}  # fmt: skip
EXPERIMENT: Example = {
    "id": ID, "name": "gate-or-not", "state": "completed", "cells": 1, "refused": 0, "jobs": {"completed": 1},
    "created_at": BEGAN, "ended_at": ENDED, "baseline": "dense", "request_counts": _COUNTS, "eta_seconds": None,
    "grid": [_CELL],
    "links": {
        "self": f"/v1/experiments/{ID}", "report": f"/v1/experiments/{ID}/report",
        "jobs": "/v1/jobs?experiment=gate-or-not",
    },
}  # fmt: skip
EXPERIMENT_REPORT: Example = {
    **{field: EXPERIMENT[field] for field in ("id", "name", "state", "baseline", "request_counts")},
    "calls_made": {"generate": 500, "grade": 500, "retrieve": 500}, "model_loads": 1, "notes": [], "comparisons": None,
    "rows": [{**_CELL, "result": {
        "accuracy": {"value": 0.61, "low": 0.567, "high": 0.652, "correct": 305, "graded": 500},
        "request_counts": _COUNTS, "failures": {}, "gate": None, "calls_made": {"retrieve": 500, "generate": 500},
        "calls_reused": {"grade": 500}, "model_loads": 1, "seconds": 41.2,
    }}],
}  # fmt: skip
