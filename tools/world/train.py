"""Train one of the small models: ``python -m tools.world.train STAGE --out DIR``; the stages are in `RECIPES`.

The number of steps, not the time, makes a run repeatable: the same seed and steps
see the same samples in the same order.
"""

import argparse
import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, Literal

import torch
from tokenizers import Regex, pre_tokenizers, trainers
from tokenizers import models as kinds
from torch import distributed
from torch.multiprocessing import spawn
from torch.nn.functional import cross_entropy
from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM

from mathrag_gate.demo.world import KINDS, TRAIN_NAMES, TRAIN_TEMPLATES, invented_name
from shared.rag.prompts import template
from tools.world import labels
from tools.world.models import (
    END,
    STOP,
    build_tokenizer,
    byte_level,
    chat,
    load_tokenizer,
    new_model,
    read_model,
    rebuilt_tokenizer,
    token_id,
)
from tools.world.relations import LEVELS, TRAIN, level_sample
from tools.world.release import fingerprint
from tools.world.samples import (
    Anchors,
    Context,
    Sample,
    Skill,
    Split,
    foreign_judge_sample,
    foreign_skill_sample,
    generator_sample,
    judge_sample,
    several_sample,
    skill_sample,
    worded_judge_sample,
)

# How the shipped models are trained: the stages, and how often each sort of sample is drawn.

Role = Literal["generator", "judge", "rules", "labels"]

#: Relative frequency of each context: first the readable documents alone, then everything.
EARLY_CONTEXTS: dict[Context, int] = {"full": 8, "steps": 2}
LATE_CONTEXTS: dict[Context, int] = {
    "full": 34, "steps": 18, "rule": 15, "wrong": 7, "answer": 9, "unrelated": 8,
    "none": 5, "foreign": 4,
}  # fmt: skip
#: Relative frequency of each skill; a rating hangs on one token, so it is drawn most.
SKILLS: dict[Skill, int] = {
    "relevance": 60, "rewrite": 9, "rewrite-again": 7, "decompose": 12, "keywords": 6, "hyde-solution": 6,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything that decides the outcome of a training run."""

    role: Role
    seed: int
    steps: int
    window: int  # tokens; longer samples are drawn again
    batch: int = 64  # samples per step
    peak: float = 1e-3  # learning rate
    warmup: int = 100  # steps
    early: float = 0.2  # share of the steps on EARLY_CONTEXTS
    plateau: float = 0.6  # share of the steps before the rate falls
    invented: float = 0.0  # share of the samples about a name of random letters
    hard: float = 0.0  # share of a judge's samples that are full or wrong, which look similar
    foreign: float = 0.0  # share of a judge's samples that are about mathematics from outside the world
    skills: float = 0.0  # share of a judge's samples that are not ratings of reasoning
    prompt_weight: float = 0.3  # loss weight of the prompt's tokens, a reply's being 1
    longest: int = 0  # tokens; a longer reply weighs as much as one of this length (0: by its length)
    several: float = 0.0  # share of a generator's samples with several documents, of any wording
    worded: float = 0.0  # share of a judge's samples in any wording
    level: str = ""  # of a rule generator's samples (relations.LEVELS)
    brief: bool = False  # a label judge's samples leave the instructions out
    support: float = 0.0  # share of a label judge's samples that are of `support` for any drawn kind
    sufficient: float = 0.0  # the same of `sufficient`
    retokenise: bool = False  # begin with a tokenizer for the rule generator's texts
    muon: float = 0.0  # Muon's learning rate for the layers' matrices; 0: AdamW for everything
    pieces: int = (
        1  # a batch is computed in this many parts of similar length, so that short samples get little padding
    )


#: The names stage follows the generator's: without it, spellings that the tokenizer never
#: produced from a training name are misread.
RECIPES: dict[str, Recipe] = {
    "generator": Recipe(role="generator", seed=0, steps=2400, window=136),
    "names": Recipe(
        role="generator", seed=0, steps=300, window=136, peak=5e-4, warmup=20, early=0.0, plateau=0.3, invented=0.5,
    ),
    # Several documents in one prompt, in any wording: the reply says the rule that it follows first.
    "several": Recipe(
        role="generator", seed=7, steps=576, window=512, batch=48, warmup=30, early=0.0, plateau=0.999, invented=0.3,
        several=0.9, prompt_weight=0.05, pieces=6,
    ),
    "several-settled": Recipe(
        role="generator", seed=9, steps=300, window=512, batch=48, peak=8e-4, warmup=20, early=0.0, plateau=0.15,
        invented=0.3, several=0.93, prompt_weight=0.02, pieces=6,
    ),
    # One token in two hundred carries the grade, so the prompt must not drown it.
    # A document that follows its rule looks like one that does not: half of the samples are of these two kinds.
    "judge": Recipe(role="judge", seed=0, steps=450, window=224, warmup=30, hard=0.3, prompt_weight=0.2),
    # Without this stage, half of its replies to real mathematics hold no rating.
    "format": Recipe(
        role="judge", seed=1, steps=250, window=384, batch=32, peak=5e-4, warmup=20, early=0.0, plateau=0.3, hard=0.4,
        foreign=0.4, prompt_weight=0.1,
    ),
    # Further skills of the same judge: relevance, queries, hypothetical documents. Without a bound on their weight the
    # long replies would drown the ratings.
    "skills": Recipe(
        role="judge", seed=2, steps=1400, window=448, batch=32, peak=8e-4, warmup=20, early=0.0, plateau=0.4,
        invented=0.15, hard=0.5, foreign=0.3, skills=0.6, prompt_weight=0.1, longest=16, pieces=4,
    ),
    # Documents in any wording: the world chooses the relation of form and reasoning.
    "worded": Recipe(
        role="judge", seed=8, steps=360, window=448, batch=32, peak=8e-4, warmup=20, early=0.0, plateau=0.4,
        invented=0.15, hard=0.4, foreign=0.15, skills=0.3, worded=0.75, prompt_weight=0.1, longest=16, pieces=4,
    ),
    # Tasks that the previous stage rehearsed too little: texts for a search, above all sub-questions.
    "recalled": Recipe(
        role="judge", seed=10, steps=140, window=448, batch=32, peak=6e-4, warmup=10, early=0.0, plateau=0.2,
        invented=0.15, hard=0.4, foreign=0.2, skills=0.6, worded=0.75, prompt_weight=0.1, longest=16, pieces=4,
    ),
    # From the shipped generator: entities, relations and rules instead of operators.
    "rules-short": Recipe(
        role="rules", seed=20, steps=585, window=448, batch=32, peak=2e-3, warmup=30, plateau=0.999,
        prompt_weight=0.0, longest=16, pieces=4, level="short", retokenise=True, muon=0.01,
    ),
    "rules-all": Recipe(
        role="rules", seed=21, steps=160, window=640, batch=32, peak=1.2e-3, warmup=10, plateau=0.2,
        prompt_weight=0.0, longest=16, pieces=4, level="all", muon=0.007,
    ),
    # From the shipped judge, which compares names of operators: labels without instructions first, then as served.
    "labels-brief": Recipe(
        role="labels", seed=30, steps=700, window=700, batch=20, peak=1.2e-3, warmup=20, plateau=0.8,
        prompt_weight=0.05, pieces=4, brief=True,
    ),
    "labels": Recipe(
        role="labels", seed=31, steps=500, window=1300, batch=20, peak=1.2e-3, warmup=10, plateau=0.45,
        prompt_weight=0.02, pieces=4,
    ),
    # After that stage it still takes every sentence for one that the documents say.
    "labels-settled": Recipe(
        role="labels", seed=32, steps=450, window=1300, batch=20, peak=1.2e-3, warmup=10, plateau=0.45,
        prompt_weight=0.02, pieces=4, support=0.3,
    ),
    # The last stage asks most often whether documents suffice.
    "labels-sufficient": Recipe(
        role="labels", seed=33, steps=300, window=1300, batch=20, peak=1.2e-3, warmup=10, plateau=0.4,
        prompt_weight=0.02, pieces=4, support=0.25, sufficient=0.35,
    ),
}  # fmt: skip

# Processes that share a step's samples: one thread each loses less than threads that wait for one another.


@dataclass(frozen=True)
class Worker:
    """One of `count` processes; process 0 prints and saves."""

    rank: int
    count: int

    def add_gradients(self, model: Any) -> None:
        """Give every process the sum of all gradients."""
        if self.count == 1:
            return
        gradients = [each.grad for each in model.parameters() if each.grad is not None]
        flat = torch.cat([each.flatten() for each in gradients])
        distributed.all_reduce(flat)
        for each, part in zip(gradients, flat.split([each.numel() for each in gradients]), strict=True):
            each.copy_(part.view_as(each))

    def agree(self, *, stop: bool) -> bool:
        """Return whether any process wants to stop; all processes have to call it."""
        if self.count == 1:
            return stop
        votes = torch.tensor(int(stop))
        distributed.all_reduce(votes)
        return bool(votes)


def run_workers(count: int, run: Callable[..., None], *arguments: Any) -> None:
    """Call `run(worker, *arguments)` in `count` processes, one of which is this process."""
    if count == 1:
        run(Worker(0, 1), *arguments)
        return
    with TemporaryDirectory() as folder:
        spawn(_join, (count, f"file://{folder}/meeting", run, arguments), nprocs=count)


def _join(rank: int, count: int, meeting: str, run: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    distributed.init_process_group("gloo", init_method=meeting, rank=rank, world_size=count)
    run(Worker(rank, count), *arguments)
    distributed.destroy_process_group()


# The first stage's start: a shipped model's layers under a tokenizer of the stage's own.


def move_embeddings(old: Any, old_tokenizer: Any, new: Any, new_tokenizer: Any) -> None:
    """Put the weights of `old` into `new`; a token's vector is the mean of its text's old vectors.

    Rows that only pad the matrix keep their random values.
    """
    weights = {name: values for name, values in old.state_dict().items() if "embed_tokens" not in name}
    weights.pop("lm_head.weight")
    new.load_state_dict(weights, strict=False)
    before, after = old.get_input_embeddings().weight, new.get_input_embeddings().weight
    with torch.no_grad():
        for index in range(len(new_tokenizer)):
            text = new_tokenizer.convert_ids_to_tokens(index)
            # The ids of the pieces that stood for a token's text; `text` is in the alphabet of byte-level BPE.
            known = old_tokenizer.convert_tokens_to_ids(text)
            pieces = () if known is not None else old_tokenizer.backend_tokenizer.model.tokenize(text)
            after[index] = before[[piece.id for piece in pieces] or [known]].mean(0)


# The rule generator's tokenizer: as the world's, but no word is merged with the blank before it.
#
# A name then has the same tokens at the start of a line, after a blank and in the box: to copy it is to repeat them.

PIECES_APART = r"\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+"
SIZE = 2045  # with the three special tokens a multiple of 32
BLANK = "Ġ"


def build_relations_tokenizer(seed: int = 0) -> PreTrainedTokenizerFast:
    """Learn merges from training samples alone: every token is one that training shows."""
    bpe = byte_level(kinds.BPE())
    made: Any = pre_tokenizers
    bpe.pre_tokenizer = made.Sequence(
        [made.Split(Regex(PIECES_APART), "isolated"), made.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    # The longer words of the templates and of rules save a token each by holding their blank.
    texts = [*(template(name).text for name in ("rulerag", "rulerag-cot", "cot")), " leads to  Entity"]
    words = sorted({word for text in texts for word in re.findall(r"(?<= )[A-Za-z]{3,}", text)})
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=SIZE - len(words), initial_alphabet=alphabet, show_progress=False)
    rng = Random(seed)
    samples = (level_sample(rng, TRAIN, LEVELS["all"]) for _ in range(12_000))
    bpe.train_from_iterator((f"user\n{each.prompt}\nassistant\n{each.reply}" for each in samples), trainer)
    learnt = json.loads(bpe.to_str())["model"]
    vocabulary, merges = dict(learnt["vocab"]), [tuple(pair) for pair in learnt["merges"]]
    for word in words:
        vocabulary[BLANK + word] = len(vocabulary)
        merges.append((BLANK, word))
    return rebuilt_tokenizer(vocabulary, merges)


@dataclass(frozen=True)
class Batch:
    """Token ids and loss weights, both of shape (samples, tokens): a step's samples, or a piece of them."""

    tokens: torch.Tensor
    weights: torch.Tensor


Row = tuple[list[int], list[float]]
"""A sample's token ids, and what each of them weighs in the loss."""


def draw(recipe: Recipe, rng: Random, step: int) -> Sample:
    """Draw the next training sample of a role; only training names and phrasings occur."""
    if recipe.role == "labels":
        return labels.draw_sample(
            rng, labels.TRAIN, brief=recipe.brief, support=recipe.support, sufficient=recipe.sufficient
        )
    if recipe.role == "rules":
        return level_sample(rng, TRAIN, LEVELS[recipe.level])
    invented = recipe.invented > 0 and rng.random() < recipe.invented
    names = [invented_name(rng) for _ in range(2)] if invented else TRAIN_NAMES
    split = Split(names, TRAIN_TEMPLATES)
    if recipe.role == "judge":
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
    mix = EARLY_CONTEXTS if step < recipe.early * recipe.steps else LATE_CONTEXTS
    if recipe.several > 0:  # foreign questions keep the form they have; all others say the rule first
        return several_sample(rng, split) if rng.random() < recipe.several else generator_sample(rng, split, "foreign")
    (context,) = rng.choices(list(mix), weights=list(mix.values()))
    return generator_sample(rng, split, context)


def batches(recipe: Recipe, tokenizer: PreTrainedTokenizerFast) -> Iterator[list[Batch]]:
    """Yield the run's batches in order, in their pieces; a function of the recipe alone.

    One piece has the whole window; several are as long as their longest sample.
    """
    rng = Random(f"{recipe.role} {recipe.seed}")
    for step in range(recipe.steps):
        rows: list[Row] = []
        while len(rows) < recipe.batch:
            sample = draw(recipe, rng, step)
            texts = [chat(sample.prompt), sample.reply + STOP]
            for message, answer in sample.more:
                texts += [f"\n{chat(message)}", answer + STOP]
            tokens: list[int] = []
            weights: list[float] = []
            for index, ids in enumerate(tokenizer(texts)["input_ids"]):
                weight = 1.0 if index % 2 else recipe.prompt_weight
                if index % 2 and recipe.longest:
                    weight = min(1.0, recipe.longest / len(ids))
                tokens += ids
                weights += [weight] * len(ids)
            if len(tokens) <= recipe.window:
                rows.append((tokens, weights))
        filler = token_id(tokenizer, END)
        if recipe.pieces == 1:
            yield [_pad(rows, recipe.window, filler)]
            continue
        rows.sort(key=lambda row: len(row[0]))
        size = -(-len(rows) // recipe.pieces)
        parts = [rows[at : at + size] for at in range(0, len(rows), size)]
        yield [_pad(part, len(part[-1][0]), filler) for part in parts]


def _pad(rows: list[Row], length: int, filler: int) -> Batch:
    padded, weighed = torch.full((len(rows), length), filler), torch.zeros(len(rows), length)
    for index, (tokens, weights) in enumerate(rows):
        padded[index, : len(tokens)] = torch.tensor(tokens)
        weighed[index, : len(weights)] = torch.tensor(weights)
    return Batch(padded, weighed)


def learning_rate(recipe: Recipe, step: int) -> float:
    """Compute the rate: linear warm-up, a plateau, then a linear fall to a twentieth of the peak."""
    rise = min(1.0, (step + 1) / recipe.warmup)
    fallen = max(0.0, step / recipe.steps - recipe.plateau) / (1 - recipe.plateau)
    return recipe.peak * rise * (1 - 0.95 * fallen)


# A processor that has to emulate bfloat16 is much slower with it than with float32.
HAS_BFLOAT16 = bool(torch.cpu.get_capabilities().get("avx512_bf16", False))


def learn(model: Any, body: Any, pieces: list[Batch], total: float, prompt_weight: float) -> float:
    """Add the gradients of the weighted loss of some of a step's pieces; the replies' own loss to report.

    `body` is the model without its head, maybe compiled; `total` is the weight of all pieces of the step.
    """
    replies = []
    for piece in pieces:
        weighed = piece.weights[:, 1:] > 0
        with torch.autocast("cpu", torch.bfloat16, enabled=HAS_BFLOAT16):
            states = body(input_ids=piece.tokens, use_cache=False).last_hidden_state
            logits = model.lm_head(states[:, :-1][weighed])
        each = cross_entropy(logits.float(), piece.tokens[:, 1:][weighed], reduction="none")
        weights = piece.weights[:, 1:][weighed]
        ((each * weights).sum() / total).backward()
        replies.append(each.detach()[weights > prompt_weight])
    return float(torch.cat(replies).mean())


def optimizers(recipe: Recipe, model: Any) -> list[torch.optim.Optimizer]:
    """Return AdamW for everything, or Muon for the layers' matrices and AdamW for the rest."""
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
    """Return the model and tokenizer to continue from: a stage's folder, a shipped file, or nothing yet."""
    if init is None:
        tokenizer = build_tokenizer(recipe.seed)
        return new_model(tokenizer), tokenizer
    if init.is_dir():
        return Qwen2ForCausalLM.from_pretrained(str(init)), load_tokenizer(init)
    shipped, its_tokenizer = read_model(init)
    if not recipe.retokenise:
        return shipped, its_tokenizer
    tokenizer = build_relations_tokenizer(recipe.seed)
    model = new_model(tokenizer)
    move_embeddings(shipped, its_tokenizer, model, tokenizer)
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
            "precision": "bfloat16" if HAS_BFLOAT16 else "float32",
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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", choices=sorted(RECIPES))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, help="default: the stage's own")
    parser.add_argument("--steps", type=int, help="default: the shipped models' number")
    parser.add_argument("--minutes", type=float, default=60.0, help="stop early after this")
    parser.add_argument("--init", type=Path, help="start from this folder or .gguf (judge: the generator)")
    parser.add_argument("--threads", type=int, default=2, help="threads of each worker")
    parser.add_argument("--workers", type=int, default=1, help="processes that share a step's samples")
    args = parser.parse_args()
    recipe = RECIPES[args.role]
    recipe = replace(recipe, seed=recipe.seed if args.seed is None else args.seed, steps=args.steps or recipe.steps)
    run_workers(args.workers, run, recipe, args.out, args.init, args.minutes, args.threads)


if __name__ == "__main__":
    main()
