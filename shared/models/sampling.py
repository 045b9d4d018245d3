"""Sampling settings for every model server, besides temperature, length and seed, that leave a model's distribution
unchanged.

A setting that is not sent takes the server's default, which differs between servers and versions: top-k 40, top-p 0.95
and min-p 0.05 in llama.cpp, a repeat penalty of 1.1 in Ollama before 0.32.10. So every setting that a server knows is
sent with its neutral value. The settings are part of a model's identity.
"""

from collections.abc import Mapping
from types import MappingProxyType

Sampling = Mapping[str, float]

OPENAI: Sampling = MappingProxyType({"top_p": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0})
"""Settings of OpenAI's protocol; servers that implement only this refuse others."""
LLAMA: Sampling = MappingProxyType(
    {
        **OPENAI, "top_k": 0, "min_p": 0.0, "typical_p": 1.0, "top_n_sigma": -1.0, "repeat_penalty": 1.0,
        "dynatemp_range": 0.0, "xtc_probability": 0.0, "dry_multiplier": 0.0, "mirostat": 0, "adaptive_target": -1.0,
    }
)  # fmt: skip
"""Settings of llama.cpp's server, named as in `/props` (b10434); versions that do not know one ignore it."""
VLLM: Sampling = MappingProxyType({**OPENAI, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0})
"""vLLM's settings; a top-k of -1 means all tokens in every version, 0 only in newer ones (vllm/sampling_params.py)."""
SGLANG = VLLM
"""SGLang has the same fields; those that are not sent take the values of the model's `generation_config.json`, where a
repetition penalty changes greedy answers as well (srt/entrypoints/openai/protocol.py, `to_sampling_params`)."""
TGI: Sampling = MappingProxyType({"frequency_penalty": 0.0})
"""text-generation-inference refuses a top-p of 1, turns a presence penalty of 0 into a repetition penalty of 2, and
has no other field for chats (router/src/lib.rs, router/src/validation.rs); settings that are not sent are off."""
OLLAMA: Sampling = MappingProxyType(
    {
        **OPENAI, "top_k": 0, "min_p": 0.0, "typical_p": 1.0, "repeat_penalty": 1.0, "repeat_last_n": 64,
    }
)  # fmt: skip
"""Ollama's options (api/types.go); it warns of unknown ones."""

BY_BACKEND: Mapping[str, Sampling] = MappingProxyType(
    {"llama.cpp": LLAMA, "vllm": VLLM, "sglang": SGLANG, "tgi": TGI, "openai": OPENAI}
)
"""Settings by the name of the backend in a model's row."""
