"""Architectures of public models, for plans with models that are not configured yet.

Architecture: the models' `config.json` on the Hugging Face hub (Qwen/Qwen2.5-0.5B-Instruct, Qwen/Qwen2.5-7B-Instruct).
Weights: bytes of the GGUF files that llama.cpp's quantisation makes of them (bartowski/Qwen2.5-...-Instruct-GGUF); two
bytes per parameter for F16 and 34 bytes per 32 parameters for Q8_0, besides vectors and tokens, as a test checks.
"""

from types import MappingProxyType

import msgspec

from shared.contracts.architecture import Architecture


class ModelPreset(msgspec.Struct, frozen=True, kw_only=True):
    """A model in several quantisations."""

    architecture: Architecture
    """Architecture with the largest weights."""
    parameters: int
    weights_bytes: dict[str, int]
    """Bytes of the weights by quantisation."""

    def with_quantisation(self, quantisation: str) -> Architecture:
        """Return the architecture with the weights of this quantisation.

        Raises:
            KeyError: the quantisation is not known.
        """
        return msgspec.structs.replace(self.architecture, weights_bytes=self.weights_bytes[quantisation])


PRESETS = MappingProxyType(
    {
        "qwen2.5-0.5b": ModelPreset(
            architecture=Architecture(
                weights_bytes=994_156_320, layers=24, heads=14, kv_heads=2, head_dim=64, embedding=896,
                vocabulary=151_936, trained_context=32_768, name="qwen2",
            ),
            parameters=494_032_768,
            weights_bytes={"q4_k_m": 397_808_192, "q8_0": 531_068_096, "f16": 994_156_320},
        ),
        "qwen2.5-7b": ModelPreset(
            architecture=Architecture(
                weights_bytes=15_237_853_184, layers=28, heads=28, kv_heads=4, head_dim=128, embedding=3584,
                vocabulary=152_064, trained_context=32_768, name="qwen2",
            ),
            parameters=7_615_616_512,
            weights_bytes={"q4_k_m": 4_683_074_240, "q8_0": 8_098_525_888, "f16": 15_237_853_184},
        ),
    }
)  # fmt: skip
