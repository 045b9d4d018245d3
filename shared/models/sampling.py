"""How every model server is told to sample, besides temperature, length and seed: as the model itself distributes.

What is not said is left to the server's defaults, which differ between servers and change between versions: top-k 40,
top-p 0.95 and min-p 0.05 in llama.cpp, a repeat penalty of 1.1 in Ollama before 0.32.10. So everything that a server
knows is sent, with the value that changes nothing. It is part of a model's identity.
"""

from collections.abc import Mapping
from types import MappingProxyType

Sampling = Mapping[str, float]

OPENAI: Sampling = MappingProxyType({"top_p": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0})
"""What OpenAI's protocol knows; servers that are nothing more refuse other fields."""
LLAMA: Sampling = MappingProxyType(
    {
        **OPENAI, "top_k": 0, "min_p": 0.0, "typical_p": 1.0, "top_n_sigma": -1.0, "repeat_penalty": 1.0,
        "dynatemp_range": 0.0, "xtc_probability": 0.0, "dry_multiplier": 0.0, "mirostat": 0, "adaptive_target": -1.0,
    }
)  # fmt: skip
"""llama.cpp's server, as `/props` names them (b10434); versions that do not know one of them ignore it."""
VLLM: Sampling = MappingProxyType({**OPENAI, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0})
"""vLLM's extra fields; -1 is all tokens in every version, 0 only in newer ones (vllm/sampling_params.py)."""
TGI: Sampling = MappingProxyType({"frequency_penalty": 0.0})
"""text-generation-inference refuses a top-p of 1, makes a repetition penalty of 2 from a presence penalty of 0, and
its chat has no other field (router/src/lib.rs, router/src/validation.rs): what is not sent is off."""
OLLAMA: Sampling = MappingProxyType(
    {
        **OPENAI, "top_k": 0, "min_p": 0.0, "typical_p": 1.0, "repeat_penalty": 1.0, "repeat_last_n": 64,
    }
)  # fmt: skip
"""Ollama's options (api/types.go); it warns of those that it does not know."""

BY_BACKEND: Mapping[str, Sampling] = MappingProxyType({"llama.cpp": LLAMA, "vllm": VLLM, "tgi": TGI, "openai": OPENAI})
"""By the name of the backend in a model's row."""
