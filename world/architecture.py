"""Defines the shape of the small models."""

from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from world.tokenizer import END, STOP, token_id


def new_model(tokenizer: PreTrainedTokenizerFast) -> Qwen2ForCausalLM:
    """Make an untrained Qwen2 of about one million parameters."""
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
