"""Whether an answer is factored as the gold one is: equal in value is not enough where the task was to factor.

A gold answer that is a product with a sum among its factors is the answer to such a task. Of the 27 in the 8,500 gold
answers of MATH that the tests read, each question says "factor" or "as the product of".
"""

from collections import Counter
from collections.abc import Iterator

from shared.mathtext.equal_values import expressions
from shared.mathtext.expressions import Apply, Expression, Number, Symbol, parts
from shared.mathtext.symbolic import symbolic

_SUMS = ("+", "-")


def asks_for_factors(answer: str, gold: str) -> bool:
    """Whether `gold` is a product of numbers, names and sums, and not one number or sum alone.

    If the answer counts by factorials or binomial coefficients, it is no polynomial whose factors were asked for.
    """
    found = expressions(gold)
    counting = any(_operations(each) & {"!", "choose"} for each in expressions(answer))
    if not found or counting or not _polynomial(found[0]):
        return False
    factors = [factor for factor, _ in _factors(found[0], 1)]
    sums = [factor for factor in factors if _is_sum(factor)]
    return bool(sums) and (len(factors) > 1 or _is_power(found[0]))


def factored_alike(answer: str, gold: str) -> bool:
    """Whether `answer` is a product of the same factors as `gold`, in any order and up to signs."""
    return any(_counted(one) == _counted(other) for one in expressions(answer) for other in expressions(gold)[:1])


def _factors(expression: Expression, power: int) -> Iterator[tuple[Expression, int]]:
    if isinstance(expression, Apply) and expression.operation in ("*", "neg"):
        for operand in expression.operands:
            yield from _factors(operand, power)
    elif _is_power(expression):
        assert isinstance(expression, Apply)  # noqa: S101 - it is a power
        base, exponent = expression.operands
        assert isinstance(exponent, Number)  # noqa: S101 - of a whole number
        yield from _factors(base, power * exponent.value.numerator)
    else:
        yield expression, power


def _is_power(expression: Expression) -> bool:
    if not isinstance(expression, Apply) or expression.operation != "^":
        return False
    exponent = expression.operands[1]
    return isinstance(exponent, Number) and exponent.value.denominator == 1 and 0 < exponent.value <= 1000


def _is_sum(expression: Expression) -> bool:
    named = any(isinstance(part, Symbol) and part.name != "i" for part in parts(expression))
    return named and isinstance(expression, Apply) and expression.operation in _SUMS


def _polynomial(expression: Expression) -> bool:
    return _operations(expression) <= {"+", "-", "*", "^", "neg"}


def _operations(expression: Expression) -> set[str]:
    return {part.operation for part in parts(expression) if isinstance(part, Apply)}


def _counted(expression: Expression) -> Counter[str]:
    """How often each factor occurs, in the spelling of SymPy; the numbers as one factor."""
    from sympy import Integer, expand

    number, counted = Integer(1), Counter[str]()
    for factor, power in _factors(expression, 1):
        value = expand(symbolic(factor))
        if value.is_number:
            number *= value**power
        else:
            counted[min(str(value), str(expand(-value)))] += power
    return counted + Counter({str(abs(number)): 1})
