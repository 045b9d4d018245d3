"""A GGUF file as a folder in Hugging Face's layout; run by vLLM's own Python: `hugging_face.py GGUF FOLDER`."""

import sys
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer


def main() -> None:
    """Configuration, weights in single precision, tokenizer and chat template."""
    gguf, folder = Path(sys.argv[1]), sys.argv[2]
    source = {"pretrained_model_name_or_path": gguf.parent, "gguf_file": gguf.name}
    read = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32)
    # What was read from a GGUF file is not saved, as it might be quantised: here it is not.
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(**source))
    model.load_state_dict(read.state_dict())
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(**source).save_pretrained(folder)


if __name__ == "__main__":
    main()
