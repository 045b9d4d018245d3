"""Write a model file in Hugging Face's layout: ``python -m world.huggingface FILE.gguf FOLDER``.

The folder holds ``config.json``, ``model.safetensors`` and the tokenizer's files; ``transformers`` and ``peft`` read
it, and ``python -m world.gguf FOLDER FILE`` writes the same tensors back.
"""

import argparse
from pathlib import Path

from world.shipped import read_model


def convert(file: Path, folder: Path) -> None:
    """Write the model and the tokenizer of a GGUF file of this project to a folder."""
    model, tokenizer = read_model(file)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def main() -> None:
    """Parse the command line and convert."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, help="a Qwen2 model that world.gguf wrote")
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()
    convert(args.file, args.folder)


if __name__ == "__main__":
    main()
