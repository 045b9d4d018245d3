"""Train one of the two small models: ``python -m world.train generator|judge --out DIR``.

The number of steps, not the time, is what makes a run repeatable: the same seed and steps
see the same samples in the same order.
"""

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import torch
from torch.nn.functional import cross_entropy
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from world.problems import KINDS, TRAIN_NAMES, TRAIN_TEMPLATES, invented_name
from world.recipes import EARLY_CONTEXTS, LATE_CONTEXTS, RECIPES, SKILLS, Recipe
from world.release import fingerprint
from world.samples import (
    Anchors,
    Sample,
    Split,
    foreign_judge_sample,
    generator_sample,
    judge_sample,
    several_sample,
    worded_judge_sample,
)
from world.shipped import read_tokenizer, read_weights
from world.skills import foreign_skill_sample, skill_sample
from world.tokenizer import END, STOP, build_tokenizer, chat, load_tokenizer, token_id


@dataclass(frozen=True)
class Batch:
    """Token ids and loss weights, both of shape (samples, tokens): a step's samples, or a piece of them."""

    tokens: torch.Tensor
    weights: torch.Tensor


def new_model(tokenizer: PreTrainedTokenizerFast) -> Qwen2ForCausalLM:
    """An untrained Qwen2 of about one million parameters."""
    config = Qwen2Config(
        vocab_size=-(-len(tokenizer) // 32) * 32,
        hidden_size=128,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        intermediate_size=384,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        eos_token_id=token_id(tokenizer, STOP),
        pad_token_id=token_id(tokenizer, END),
        bos_token_id=None,
    )
    return Qwen2ForCausalLM(config)


def draw(recipe: Recipe, rng: Random, step: int) -> Sample:
    """The next training sample of a role; only training names and phrasings occur."""
    invented = recipe.invented > 0 and rng.random() < recipe.invented
    names = [invented_name(rng) for _ in range(2)] if invented else TRAIN_NAMES
    split = Split(names, TRAIN_TEMPLATES)
    if recipe.role == "judge":
        return _draw_for_judge(recipe, rng, split)
    mix = EARLY_CONTEXTS if step < recipe.early * recipe.steps else LATE_CONTEXTS
    if recipe.several > 0:  # foreign questions keep the form they have; all others say the rule first
        return several_sample(rng, split) if rng.random() < recipe.several else generator_sample(rng, split, "foreign")
    (context,) = rng.choices(list(mix), weights=list(mix.values()))
    return generator_sample(rng, split, context)


def _draw_for_judge(recipe: Recipe, rng: Random, split: Split) -> Sample:
    # A share of nothing draws nothing: the older stages see the samples that they have always seen.
    skilled = recipe.skills > 0 and rng.random() < recipe.skills
    foreign = recipe.foreign > 0 and rng.random() < recipe.foreign
    if skilled:
        (skill,) = rng.choices(list(SKILLS), weights=list(SKILLS.values()))
        return (foreign_skill_sample if foreign else skill_sample)(rng, split, skill)
    if foreign:
        return foreign_judge_sample(rng, split, "default" if rng.random() < 0.5 else "drawn")
    kinds = ("full", "wrong") if recipe.hard > 0 and rng.random() < recipe.hard else KINDS
    anchors: Anchors = "default" if rng.random() < 0.5 else "drawn"
    if recipe.worded > 0 and rng.random() < recipe.worded:
        return worded_judge_sample(rng, split, rng.choice(kinds), anchors)
    return judge_sample(rng, split, rng.choice(kinds), anchors)


def batches(recipe: Recipe, tokenizer: PreTrainedTokenizerFast) -> Iterator[list[Batch]]:
    """The run's batches in order, in their pieces; a function of the recipe alone."""
    rng = Random(f"{recipe.role} {recipe.seed}")
    for step in range(recipe.steps):
        rows: list[tuple[list[int], int]] = []
        while len(rows) < recipe.batch:
            prompt, reply = _encode(tokenizer, draw(recipe, rng, step))
            if len(prompt) + len(reply) <= recipe.window:
                rows.append((prompt + reply, len(prompt)))
        yield _pieces(recipe, rows, token_id(tokenizer, END))


def _pieces(recipe: Recipe, rows: list[tuple[list[int], int]], filler: int) -> list[Batch]:
    """One piece has the whole window; several are as long as their longest sample."""
    if recipe.pieces == 1:
        return [_pad(recipe, rows, recipe.window, filler)]
    rows = sorted(rows, key=lambda row: len(row[0]))
    size = -(-len(rows) // recipe.pieces)
    parts = [rows[at : at + size] for at in range(0, len(rows), size)]
    return [_pad(recipe, part, len(part[-1][0]), filler) for part in parts]


def _encode(tokenizer: PreTrainedTokenizerFast, sample: Sample) -> tuple[list[int], list[int]]:
    encoded = tokenizer([chat(sample.prompt), sample.reply + STOP])["input_ids"]
    return encoded[0], encoded[1]


def _pad(recipe: Recipe, rows: list[tuple[list[int], int]], length: int, filler: int) -> Batch:
    tokens = torch.full((len(rows), length), filler)
    weights = torch.zeros(len(rows), length)
    for index, (ids, prompt_length) in enumerate(rows):
        tokens[index, : len(ids)] = torch.tensor(ids)
        weights[index, :prompt_length] = recipe.prompt_weight
        weights[index, prompt_length : len(ids)] = _reply_weight(recipe, len(ids) - prompt_length)
    return Batch(tokens, weights)


def _reply_weight(recipe: Recipe, length: int) -> float:
    return min(1.0, recipe.longest / length) if recipe.longest else 1.0


def learning_rate(recipe: Recipe, step: int) -> float:
    """Linear warm-up, a plateau, then a linear fall to a twentieth of the peak."""
    rise = min(1.0, (step + 1) / recipe.warmup)
    fallen = max(0.0, step / recipe.steps - recipe.plateau) / (1 - recipe.plateau)
    return recipe.peak * rise * (1 - 0.95 * fallen)


def learn(forward: Any, pieces: list[Batch], prompt_weight: float) -> float:
    """Add the gradients of a step's weighted loss; the replies' own loss to report."""
    total = sum(piece.weights[:, 1:].sum().item() for piece in pieces)
    replies = []
    for piece in pieces:
        with torch.autocast("cpu", torch.bfloat16):
            logits = forward(input_ids=piece.tokens, use_cache=False).logits
        flat = logits[:, :-1].float().flatten(0, 1)
        each = cross_entropy(flat, piece.tokens[:, 1:].flatten(), reduction="none")
        weights = piece.weights[:, 1:].flatten()
        ((each * weights).sum() / total).backward()
        replies.append(each.detach()[weights > prompt_weight])
    return float(torch.cat(replies).mean())


def fit(recipe: Recipe, model: Any, tokenizer: PreTrainedTokenizerFast, minutes: float) -> int:
    """Train in place; return the steps made, fewer than planned if ``minutes`` ran out."""
    # Pieces have many shapes, and each would be compiled.
    forward = torch.compile(model) if recipe.pieces == 1 else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.peak, betas=(0.9, 0.98), weight_decay=0.01, fused=True)
    begun = time.monotonic()
    for step, pieces in enumerate(batches(recipe, tokenizer)):
        if time.monotonic() - begun > 60 * minutes:
            return step
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(recipe, step)
        reply_loss = learn(forward, pieces, recipe.prompt_weight)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step % 50 == 49:
            spent = (time.monotonic() - begun) / 60
            print(f"step {step + 1}  reply loss {reply_loss:.3f}  {spent:.1f} min", flush=True)
    return recipe.steps


def begin(recipe: Recipe, init: Path | None) -> tuple[Any, PreTrainedTokenizerFast]:
    """The model and tokenizer to go on from: a stage's folder, a shipped file, or nothing yet."""
    if init is None:
        tokenizer = build_tokenizer(recipe.seed)
        return new_model(tokenizer), tokenizer
    if init.is_dir():
        return Qwen2ForCausalLM.from_pretrained(str(init)), load_tokenizer(init)
    tokenizer = read_tokenizer(init)
    model = new_model(tokenizer)
    read_weights(init, model)
    return model, tokenizer


def run(recipe: Recipe, out: Path, init: Path | None, minutes: float, threads: int) -> None:
    """Train, and write the model, its tokenizer and ``training.json`` to ``out``."""
    torch.set_num_threads(threads)
    torch.manual_seed(recipe.seed)
    model, tokenizer = begin(recipe, init)
    begun = time.monotonic()
    made = fit(recipe, model, tokenizer, minutes)
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    record = {
        **asdict(recipe),
        "init": fingerprint(init) if init and init.is_file() else "",
        "steps_made": made,
        "minutes": round((time.monotonic() - begun) / 60, 1),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
    }
    (out / "training.json").write_text(json.dumps(record, indent=2) + "\n")


def main() -> None:
    """Parse the command line and train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", choices=sorted(RECIPES))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, help="default: the shipped models' number")
    parser.add_argument("--minutes", type=float, default=60.0, help="stop early after this")
    parser.add_argument("--init", type=Path, help="start from this folder or .gguf (judge: the generator)")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    recipe = RECIPES[args.role]
    recipe = replace(recipe, seed=args.seed, steps=args.steps or recipe.steps)
    run(recipe, args.out, args.init, args.minutes, args.threads)


if __name__ == "__main__":
    main()
