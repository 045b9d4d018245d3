"""Example of a comparison for the OpenAPI document; a test validates it against the schema."""

from typing import Any

EXAMPLE: dict[str, Any] = {
    "measure": "accuracy",
    "baseline": "dense",
    "finding": "No variant beats dense at n = 500; gate leads by 0.8 points, not separable",
    "jobs": [
        {"name": "dense", "jobs": ["6b0c1e9e-5f0f-4c0e-9a55-3d0f4f0f6a11"], "datasets": ["world"], "pipeline": "dense",
         "items": 500,
         "accuracy": {"value": 0.612, "low": 0.569, "high": 0.654, "items": 500, "correct": 306, "graded": 500},
         "measured": {"value": 0.612, "low": 0.569, "high": 0.654, "n": 500},
         "bootstrap": {"value": 0.612, "low": 0.57, "high": 0.654},
         "repeats": {"accuracies": [0.612], "items": 500, "mean": 0.612, "std": None},
         "endings": {"correct": 306, "truncated": 2, "arithmetic": 61, "logic": 131}},
        {"name": "gate", "jobs": ["0d3f4f0f-6a11-4c0e-9a55-6b0c1e9e5f0f"], "datasets": ["world"],
         "pipeline": "mathrag-gate", "items": 500,
         "accuracy": {"value": 0.62, "low": 0.577, "high": 0.661, "items": 500, "correct": 310, "graded": 500},
         "measured": {"value": 0.62, "low": 0.577, "high": 0.661, "n": 500},
         "bootstrap": {"value": 0.62, "low": 0.578, "high": 0.662},
         "repeats": {"accuracies": [0.62], "items": 500, "mean": 0.62, "std": None},
         "endings": {"correct": 310, "truncated": 1, "arithmetic": 58, "logic": 131}},
    ],
    "pairs": [
        {"left": "gate", "right": "dense", "items": 500, "gained": 21, "lost": 17, "p": 0.627, "adjusted": 0.627,
         "separable": False, "difference": {"value": 0.008, "low": -0.016, "high": 0.032},
         "corrected": {"value": 0.008, "low": -0.016, "high": 0.032}, "effect": 0.017,
         "needed": 9319, "left_only": 0, "right_only": 0,
         "moved": {"correct": {"correct": 289, "arithmetic": 6, "logic": 15}, "truncated": {"truncated": 1},
                   "arithmetic": {"correct": 5, "arithmetic": 53},
                   "logic": {"correct": 12, "truncated": 1, "arithmetic": 2, "logic": 116}},
         "words": "not separable at n = 500: +0.8 points (-1.6 to +3.2), +21 -17 of 500, p = 0.627; a difference like "
                  "this needs about 9,319 items"}
    ],
    "notes": [],
}  # fmt: skip
