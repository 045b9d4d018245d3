"""Names in spans, by OpenTelemetry's GenAI conventions and OpenInference, which viewers understand.

They are written out here because the packages that define them change often and would be needed in every process.
"""

SCHEMA_URL = "https://opentelemetry.io/schemas/1.44.0"
"""Version of OpenTelemetry's semantic conventions, whose GenAI part is still in development."""

ERROR_TYPE = "error.type"
OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
REQUEST_MODEL = "gen_ai.request.model"
REQUEST_TEMPERATURE = "gen_ai.request.temperature"
REQUEST_MAX_TOKENS = "gen_ai.request.max_tokens"
REQUEST_SEED = "gen_ai.request.seed"
RESPONSE_FINISH_REASONS = "gen_ai.response.finish_reasons"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
INPUT_MESSAGES = "gen_ai.input.messages"
OUTPUT_MESSAGES = "gen_ai.output.messages"

SPAN_KIND = "openinference.span.kind"
CHAIN, LLM, RETRIEVER, RERANKER = "CHAIN", "LLM", "RETRIEVER", "RERANKER"
EMBEDDING, EVALUATOR = "EMBEDDING", "EVALUATOR"
KINDS_OF_ROLE = {
    "retrieve": RETRIEVER,
    "rerank": RERANKER,
    "embed": EMBEDDING,
    "grade": EVALUATOR,
    "verify": EVALUATOR,
    "estimate": EVALUATOR,
    "rules": RETRIEVER,
}
"""OpenInference's kind of span by role, for calls that no model server answers."""
MODEL_NAME = "llm.model_name"
PROMPT_TOKENS = "llm.token_count.prompt"
COMPLETION_TOKENS = "llm.token_count.completion"
INPUT = "input.value"
OUTPUT = "output.value"


def document_attribute(rank: int, what: str) -> str:
    """Return OpenInference's name for a retrieved document's `id` or `score`; `rank` counts from 0."""
    return f"retrieval.documents.{rank}.document.{what}"
