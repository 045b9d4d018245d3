"""Pin what a rule-guided job needs at submission, and check which rule banks it may follow."""

from msgspec.structs import replace
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.contracts.params import Params
from shared.contracts.rule_params import RuleragParams
from shared.errors import Invalid
from shared.storage import rule_banks

GRAPH = text("""
    SELECT name, encode(hash, 'hex') AS hash, encode(phrases_hash, 'hex') AS phrases FROM graphs
    WHERE corpus_id = :corpus ORDER BY id LIMIT 1""")


async def pin_rulerag(
    connection: AsyncConnection,
    params: Params,
    corpus: int | None,
    has_judge: bool,  # noqa: FBT001 - looked up by position
) -> RuleragParams:
    """Add the phrases of the corpus's graph to the parameters; without a judge model, none is asked for a relation.

    A corpus that belongs to no graph is accepted, and so is a bank whose graph is unknown.

    Raises:
        Invalid: no bank is named, it was mined from another graph, or rewritten queries lack a judge model.
        NotFound, Conflict: see `rule_banks.get_sealed_hash`.
    """
    rulerag = params.rulerag
    if rulerag.most and not params.rules:
        hint = "mathrag rules list, then --set rules=NAME"
        raise Invalid("`params.rules`: pipeline 'rulerag' needs a rule bank, or `rulerag.most` 0", hint=hint)
    if rulerag.query == "rewritten" and not has_judge:
        hint = "name one with --model judge=NAME, configure `roles.judge`, or take `joined`"
        raise Invalid("`params.rulerag.query`: `rewritten` needs a judge model, and there is none", hint=hint)
    graph = (await connection.execute(GRAPH, {"corpus": corpus})).first()
    if graph is not None and params.rules:
        await _check_graph(connection, params.rules, graph.name, graph.hash)
    phrases = (graph and graph.phrases) or ""
    return replace(rulerag, phrases=phrases, ask=rulerag.ask and has_judge)


async def _check_graph(connection: AsyncConnection, name: str, graph: str, hash_: str) -> None:
    bank = await rule_banks.get_bank(connection, name)
    if bank.graph_hash in (None, hash_):
        return
    mined = f"{bank.graph!r}" if bank.graph else f"with the hash {str(bank.graph_hash)[:12]}"
    hint = f"mathrag rules mine --graph {graph} --name NAME" + (f", or --corpus {bank.graph}" if bank.graph else "")
    message = f"`params.rules`: rule bank {name!r} was mined from graph {mined}, and the corpus holds graph {graph!r}"
    raise Invalid(message, hint=hint)
