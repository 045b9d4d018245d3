"""Fine-tune a generator: ``python -m tools.world.lora --base FILE.gguf|FOLDER --data D.jsonl --dev E.jsonl --out DIR``.

Writes the adapter of the best epoch (`adapter/`), the merged model in Hugging Face's layout (`merged/`), the same as
GGUF (`merged.gguf`, for models of this project) and `lora.json`, which records the run.

Defaults are those of RuleRAG for LLaMA2-7B (Hu et al. 2024): rank 8, alpha 32, dropout 0.05, rate 3e-4, batch 8, 50
epochs, every third one compared on the dev set. Prompts are not in the loss.
"""

import argparse
import json
import time
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from peft.utils import get_peft_model_state_dict, set_peft_model_state_dict
from transformers import AutoModelForCausalLM, AutoTokenizer

from tools.world.models import END, STOP, export, read_model
from tools.world.samples import Exchange, read_messages

IGNORED = -100  # the loss leaves out labels of this value


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of the training; the defaults are RuleRAG's."""

    rank: int = 8
    alpha: int = 32
    dropout: float = 0.05
    rate: float = 3e-4
    batch: int = 8
    epochs: int = 50
    every: int = 3  # epochs between two measurements on the dev set
    longest: int = 5120  # tokens; longer exchanges are left out, and counted
    seed: int = 0


@dataclass(frozen=True)
class Encoded:
    """An exchange as token ids, with the number of the prompt's."""

    tokens: list[int]
    prompt: int


def load_base(base: Path) -> tuple[Any, Any]:
    """Load the model and the tokenizer to start from."""
    if base.is_file():
        return read_model(base)
    tokenizer: Any = AutoTokenizer
    return AutoModelForCausalLM.from_pretrained(str(base)), tokenizer.from_pretrained(str(base))


def encode(tokenizer: Any, exchanges: Sequence[Exchange], longest: int) -> list[Encoded]:
    """Encode exchanges by the model's chat template; those above `longest` tokens are left out."""
    encoded = []
    for exchange in exchanges:
        prompt = tokenizer(chat_prompt(tokenizer, exchange.prompt), add_special_tokens=False)["input_ids"]
        reply = tokenizer(exchange.reply + tokenizer.eos_token, add_special_tokens=False)["input_ids"]
        if len(prompt) + len(reply) <= longest:
            encoded.append(Encoded(prompt + reply, len(prompt)))
    return encoded


def chat_prompt(tokenizer: Any, prompt: str) -> str:
    """Write the text before the reply by the model's chat template."""
    message = [{"role": "user", "content": prompt}]
    return str(tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True))


def pad(rows: Sequence[Encoded], filler: int, device: Any) -> dict[str, torch.Tensor]:
    """Pad a batch to the shape (rows, longest row); labels cover only the replies."""
    length = max(len(row.tokens) for row in rows)
    tokens = torch.full((len(rows), length), filler)
    labels = torch.full((len(rows), length), IGNORED)
    mask = torch.zeros((len(rows), length), dtype=torch.long)
    for index, row in enumerate(rows):
        tokens[index, : len(row.tokens)] = torch.tensor(row.tokens)
        labels[index, row.prompt : len(row.tokens)] = torch.tensor(row.tokens[row.prompt :])
        mask[index, : len(row.tokens)] = 1
    return {"input_ids": tokens.to(device), "labels": labels.to(device), "attention_mask": mask.to(device)}


def mean_loss(model: Any, rows: Sequence[Encoded], batch: int, filler: int) -> float:
    """Average the loss of a reply's tokens over rows."""
    model.eval()
    total = 0.0
    with torch.no_grad():
        for at in range(0, len(rows), batch):
            part = rows[at : at + batch]
            total += model(**pad(part, filler, model.device)).loss.item() * len(part)
    model.train()
    return total / len(rows)


def train(model: Any, rows: Sequence[Encoded], dev: Sequence[Encoded], filler: int, options: Options) -> Any:
    """Train the adapter, put the best epoch's back, and return the dev losses by epoch; epoch 0 is the base model."""
    rng = Random(options.seed)
    weights = [each for each in model.parameters() if each.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=options.rate)
    losses = {0: mean_loss(model, dev, options.batch, filler)}
    best = deepcopy(get_peft_model_state_dict(model))
    for epoch in range(1, options.epochs + 1):
        model.train()
        shuffled = rng.sample(rows, len(rows))
        for at in range(0, len(rows), options.batch):
            model(**pad(shuffled[at : at + options.batch], filler, model.device)).loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        if epoch % options.every == 0 or epoch == options.epochs:
            losses[epoch] = mean_loss(model, dev, options.batch, filler)
            print(f"epoch {epoch}  dev loss {losses[epoch]:.4f}", flush=True)
            if losses[epoch] == min(losses.values()):
                best = deepcopy(get_peft_model_state_dict(model))
    set_peft_model_state_dict(model, best)
    return losses


def exact_match(model: Any, tokenizer: Any, exchanges: Sequence[Exchange]) -> float:
    """Return the share of prompts whose greedy reply equals the wanted one, apart from space around it."""
    model.eval()
    hits = 0
    for exchange in exchanges:
        prompt = tokenizer(chat_prompt(tokenizer, exchange.prompt), add_special_tokens=False, return_tensors="pt")
        ids = prompt["input_ids"].to(model.device)
        most = len(tokenizer(exchange.reply)["input_ids"]) + 16
        with torch.no_grad():
            made = model.generate(input_ids=ids, max_new_tokens=most, do_sample=False)
        hits += tokenizer.decode(made[0, ids.shape[1] :], skip_special_tokens=True).strip() == exchange.reply.strip()
    return hits / len(exchanges)


def run(base: Path, files: dict[str, Path | None], out: Path, options: Options) -> dict[str, Any]:
    """Train, merge, write everything to `out`, and return what `lora.json` says."""
    exchanges = {name: read_messages(file) for name, file in files.items() if file}
    torch.manual_seed(options.seed)
    model, tokenizer = load_base(base)
    model.to("cuda" if torch.cuda.is_available() else "cpu")
    test = exchanges.get("test")
    before = exact_match(model, tokenizer, test) if test else None
    rows, dev = (encode(tokenizer, exchanges[name], options.longest) for name in ("data", "dev"))
    filler = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    begun = time.monotonic()
    # An untrained adapter to all linear layers but the head.
    config = LoraConfig(
        r=options.rank, lora_alpha=options.alpha, lora_dropout=options.dropout, target_modules="all-linear",
        task_type="CAUSAL_LM",
    )  # fmt: skip
    adapted: Any = get_peft_model(model, config)
    losses = train(adapted, rows, dev, filler, options)
    minutes = (time.monotonic() - begun) / 60
    adapted.save_pretrained(str(out / "adapter"))
    merged = adapted.merge_and_unload()
    merged.save_pretrained(str(out / "merged"))
    tokenizer.save_pretrained(str(out / "merged"))
    # `tools.world.models` can write a Qwen2 under a tokenizer of this project as GGUF.
    special = {tokenizer.pad_token, tokenizer.eos_token}
    own = merged.config.model_type == "qwen2" and special == {END, STOP} and len(tokenizer) <= 4096
    if own:
        export(out / "merged", out / "merged.gguf", out.name)
    record = {
        "base": base.name,
        **asdict(options),
        "examples": len(rows),
        "left_out": len(exchanges["data"]) - len(rows),
        "dev_loss": {str(epoch): round(loss, 4) for epoch, loss in losses.items()},
        "minutes": round(minutes, 1),
        "exact_match_before": before,
        "exact_match_after": exact_match(merged, tokenizer, test) if test else None,
        "gguf": "merged.gguf" if own else "not this project's layout: use llama.cpp's convert_hf_to_gguf.py",
    }
    (out / "lora.json").write_text(json.dumps(record, indent=2) + "\n")
    return record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", type=Path, required=True, help="a GGUF file of this project, or a folder")
    parser.add_argument("--data", type=Path, required=True, help="messages to learn from, JSON lines")
    parser.add_argument("--dev", type=Path, required=True, help="messages that choose the epoch")
    parser.add_argument("--test", type=Path, help="messages for exact match before and after")
    parser.add_argument("--out", type=Path, required=True)
    for name, value in asdict(Options()).items():
        parser.add_argument(f"--{name}", type=type(value), default=value, help=f"default {value}")
    args = parser.parse_args()
    options = Options(**{name: getattr(args, name) for name in asdict(Options())})
    files = {"data": args.data, "dev": args.dev, "test": args.test}
    print(json.dumps(run(args.base, files, args.out, options), indent=2))


if __name__ == "__main__":
    main()
