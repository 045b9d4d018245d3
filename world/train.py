"""Train one of the two small models: ``python -m world.train generator|judge --out DIR``.

The number of steps, not the time, is what makes a run repeatable: the same seed and steps
see the same samples in the same order.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import torch
from torch.nn.functional import cross_entropy
from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM

from world.architecture import new_model
from world.problems import KINDS, TRAIN_NAMES, TRAIN_TEMPLATES, invented_name
from world.recipes import EARLY_CONTEXTS, LATE_CONTEXTS, RECIPES, SKILLS, Recipe
from world.relations.samples import LEVELS, TRAIN, level_sample
from world.relations.start import move_embeddings
from world.relations.tokenizer import build_relations_tokenizer
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
from world.shipped import read_model
from world.skills import foreign_skill_sample, skill_sample
from world.tokenizer import END, STOP, build_tokenizer, chat, load_tokenizer, token_id
from world.workers import Worker, run_workers


@dataclass(frozen=True)
class Batch:
    """Token ids and loss weights, both of shape (samples, tokens): a step's samples, or a piece of them."""

    tokens: torch.Tensor
    weights: torch.Tensor


@dataclass(frozen=True)
class Row:
    """A sample's token ids, and what each of them weighs in the loss."""

    tokens: list[int]
    weights: list[float]


def draw(recipe: Recipe, rng: Random, step: int) -> Sample:
    """The next training sample of a role; only training names and phrasings occur."""
    if recipe.role == "rules":
        return level_sample(rng, TRAIN, LEVELS[recipe.level])
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
        rows: list[Row] = []
        while len(rows) < recipe.batch:
            row = _encode(recipe, tokenizer, draw(recipe, rng, step))
            if len(row.tokens) <= recipe.window:
                rows.append(row)
        yield _pieces(recipe, rows, token_id(tokenizer, END))


def _pieces(recipe: Recipe, rows: list[Row], filler: int) -> list[Batch]:
    """One piece has the whole window; several are as long as their longest sample."""
    if recipe.pieces == 1:
        return [_pad(rows, recipe.window, filler)]
    rows = sorted(rows, key=lambda row: len(row.tokens))
    size = -(-len(rows) // recipe.pieces)
    parts = [rows[at : at + size] for at in range(0, len(rows), size)]
    return [_pad(part, len(part[-1].tokens), filler) for part in parts]


def _encode(recipe: Recipe, tokenizer: PreTrainedTokenizerFast, sample: Sample) -> Row:
    texts = [chat(sample.prompt), sample.reply + STOP]
    for message, answer in sample.more:
        texts += [f"\n{chat(message)}", answer + STOP]
    tokens: list[int] = []
    weights: list[float] = []
    for index, ids in enumerate(tokenizer(texts)["input_ids"]):
        weight = _reply_weight(recipe, len(ids)) if index % 2 else recipe.prompt_weight
        tokens += ids
        weights += [weight] * len(ids)
    return Row(tokens, weights)


def _pad(rows: list[Row], length: int, filler: int) -> Batch:
    tokens = torch.full((len(rows), length), filler)
    weights = torch.zeros(len(rows), length)
    for index, row in enumerate(rows):
        tokens[index, : len(row.tokens)] = torch.tensor(row.tokens)
        weights[index, : len(row.weights)] = torch.tensor(row.weights)
    return Batch(tokens, weights)


def _reply_weight(recipe: Recipe, length: int) -> float:
    return min(1.0, recipe.longest / length) if recipe.longest else 1.0


def learning_rate(recipe: Recipe, step: int) -> float:
    """Linear warm-up, a plateau, then a linear fall to a twentieth of the peak."""
    rise = min(1.0, (step + 1) / recipe.warmup)
    fallen = max(0.0, step / recipe.steps - recipe.plateau) / (1 - recipe.plateau)
    return recipe.peak * rise * (1 - 0.95 * fallen)


def learn(model: Any, body: Any, pieces: list[Batch], total: float, prompt_weight: float) -> float:
    """Add the gradients of the weighted loss of some of a step's pieces; the replies' own loss to report.

    `body` is the model without its head, maybe compiled; `total` is the weight of all pieces of the step.
    """
    replies = []
    for piece in pieces:
        weighed = piece.weights[:, 1:] > 0
        with torch.autocast("cpu", torch.bfloat16):
            states = body(input_ids=piece.tokens, use_cache=False).last_hidden_state
            logits = model.lm_head(states[:, :-1][weighed])
        each = cross_entropy(logits.float(), piece.tokens[:, 1:][weighed], reduction="none")
        weights = piece.weights[:, 1:][weighed]
        ((each * weights).sum() / total).backward()
        replies.append(each.detach()[weights > prompt_weight])
    return float(torch.cat(replies).mean())


def optimizers(recipe: Recipe, model: Any) -> list[torch.optim.Optimizer]:
    """AdamW for everything, or Muon for the layers' matrices and AdamW for the rest."""
    hidden = [each for name, each in model.named_parameters() if recipe.muon and each.ndim == 2 and ".layers." in name]
    chosen = {id(each) for each in hidden}
    rest = [each for each in model.parameters() if id(each) not in chosen]
    adam = torch.optim.AdamW(rest, lr=recipe.peak, betas=(0.9, 0.98), weight_decay=0.01, fused=True)
    muon = [torch.optim.Muon(hidden, lr=recipe.muon, weight_decay=0.01)] if hidden else []
    return [adam, *muon]


def fit(
    recipe: Recipe,
    model: Any,
    tokenizer: PreTrainedTokenizerFast,
    minutes: float,
    worker: Worker,
    save: Callable[[int], None],
) -> int:
    """Train in place; return the steps made, fewer than planned if ``minutes`` ran out."""
    # Pieces have many shapes, and each would be compiled.
    body = torch.compile(model.model) if recipe.pieces == 1 else model.model
    chosen = optimizers(recipe, model)
    peaks = [optimizer.param_groups[0]["lr"] / recipe.peak for optimizer in chosen]
    begun = time.monotonic()
    saved = begun
    for step, pieces in enumerate(batches(recipe, tokenizer)):
        if worker.agree(stop=time.monotonic() - begun > 60 * minutes):
            return step
        for optimizer, ratio in zip(chosen, peaks, strict=True):
            optimizer.param_groups[0]["lr"] = ratio * learning_rate(recipe, step)
        total = sum(piece.weights[:, 1:].sum().item() for piece in pieces)
        reply_loss = learn(model, body, pieces[worker.rank :: worker.count], total, recipe.prompt_weight)
        worker.add_gradients(model)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in chosen:
            optimizer.step()
            optimizer.zero_grad()
        if step % 25 == 24 and worker.rank == 0:
            spent = (time.monotonic() - begun) / 60
            print(f"step {step + 1}  reply loss {reply_loss:.3f}  {spent:.1f} min", flush=True)
        if worker.rank == 0 and time.monotonic() - saved > 180:
            save(step + 1)
            saved = time.monotonic()
    return recipe.steps


def begin(recipe: Recipe, init: Path | None) -> tuple[Any, PreTrainedTokenizerFast]:
    """The model and tokenizer to go on from: a stage's folder, a shipped file, or nothing yet."""
    if init is None:
        tokenizer = build_tokenizer(recipe.seed)
        return new_model(tokenizer), tokenizer
    if init.is_dir():
        return Qwen2ForCausalLM.from_pretrained(str(init)), load_tokenizer(init)
    model, tokenizer = read_model(init)
    return _retokenised(recipe, model, tokenizer) if recipe.retokenise else (model, tokenizer)


def _retokenised(
    recipe: Recipe, old: Any, old_tokenizer: PreTrainedTokenizerFast
) -> tuple[Any, PreTrainedTokenizerFast]:
    tokenizer = build_relations_tokenizer(recipe.seed)
    model = new_model(tokenizer)
    move_embeddings(old, old_tokenizer, model, tokenizer)
    return model, tokenizer


def run(worker: Worker, recipe: Recipe, out: Path, init: Path | None, minutes: float, threads: int) -> None:
    """Train, and write the model, its tokenizer and ``training.json`` to ``out``."""
    torch.set_num_threads(threads)
    torch.manual_seed(recipe.seed)
    model, tokenizer = begin(recipe, init)
    begun = time.monotonic()

    def save(made: int) -> None:
        record = {
            **asdict(recipe),
            "init": fingerprint(init) if init and init.is_file() else "",
            "steps_made": made,
            "minutes": round((time.monotonic() - begun) / 60, 1),
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
        }
        model.save_pretrained(out)
        tokenizer.save_pretrained(out)
        (out / "training.json").write_text(json.dumps(record, indent=2) + "\n")

    made = fit(recipe, model, tokenizer, minutes, worker, save)
    if worker.rank == 0:
        save(made)


def main() -> None:
    """Parse the command line and train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", choices=sorted(RECIPES))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, help="default: the stage's own")
    parser.add_argument("--steps", type=int, help="default: the shipped models' number")
    parser.add_argument("--minutes", type=float, default=60.0, help="stop early after this")
    parser.add_argument("--init", type=Path, help="start from this folder or .gguf (judge: the generator)")
    parser.add_argument("--threads", type=int, default=2, help="of each worker")
    parser.add_argument("--workers", type=int, default=1, help="processes that share a step's samples")
    args = parser.parse_args()
    recipe = RECIPES[args.role]
    recipe = replace(recipe, seed=recipe.seed if args.seed is None else args.seed, steps=args.steps or recipe.steps)
    run_workers(args.workers, run, recipe, args.out, args.init, args.minutes, args.threads)


if __name__ == "__main__":
    main()
