"""Programs that a model wrote with SymPy: the part of Python that they may use, and how one is run.

A program is hostile until shown otherwise, since a document in the prompt may have dictated it. It is checked against
lists of allowed names and syntax, and never against lists of forbidden ones. `services/judge/program_process.py` runs
it in a process with limits, because an allowed program may still compute for ever or take all memory.
"""

import ast
import builtins
import itertools
import keyword
import math
import operator
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cache
from types import SimpleNamespace
from typing import Any

VERSION = 1
"""Raised whenever a program could give another output, so that it is run again."""
LONGEST = 4_000
"""Maximum length of a program, in characters; it is checked before anything is parsed."""
DEEPEST = 60
"""Maximum depth of a program's syntax tree."""
LONGEST_OUTPUT = 1_000
"""Maximum length of the output, in characters."""
RESULT = "answer"
"""The name to which a program assigns its result."""


class RefusedProgram(ValueError):
    """The program was not run; the message names its line and the forbidden part."""


class NoAnswer(ValueError):
    """The program ended without an answer that can be written down; the message says why."""


# Names that a program may use. Functions of SymPy that read a text as an expression, print, plot, write files, make
# code or change SymPy itself are not here: `sympify`, `parse_expr`, `lambdify`, `srepr`, `preview`, `plot`,
# `init_printing` ...

SYMPY = """
    Abs Add And Array Catalan Circle Complement Complexes ConditionSet Contains Curve Derivative Determinant DiracDelta
    Dummy E Ellipse EmptySet Eq Equality EulerGamma FiniteSet Float Function Ge GoldenRatio GreaterThan Gt Heaviside I
    Identity ImmutableMatrix Implies Integer Integers Integral Intersection Interval Inverse KroneckerDelta LambertW
    Lambda Le LessThan Limit Line Line2D Line3D Lt Matrix MatrixSymbol Max Min Mod Mul N Naturals Naturals0 Ne Not Or
    Order Parabola Piecewise Plane Point Point2D Point3D Poly Polygon Pow Product ProductSet Quaternion Range Rational
    Rationals Ray Reals RegularPolygon Rem S Segment Segment2D Set SparseMatrix StrictGreaterThan StrictLessThan Subs
    Sum Symbol SymmetricDifference Triangle Tuple Union Unequality Xor acos acosh acot acsc adjoint all_roots
    apart arg asec asin asinh atan atan2 atanh bell bernoulli besseli besselj besselk bessely beta binomial cancel
    carmichael casoratian catalan cbrt ceiling chebyshevt chebyshevu closest_points cofactors collect combsimp
    compose composite conjugate content continued_fraction continued_fraction_convergents continued_fraction_periodic
    continued_fraction_reduce convex_hull cos cosh cot coth count_roots csc csch cyclotomic_poly decompose deg degree
    denom det diag diff digamma diophantine dirichlet_eta discrete_log discriminant div divisor_count divisor_sigma
    divisors dsolve egyptian_fraction erf erfc euler exp expand expand_complex expand_func expand_log expand_mul
    expand_trig exquo eye factor factor_list factorial factorial2 factorint factorrat farthest_points ff fibonacci
    flatten floor fourier_series fraction gamma gammasimp gcd gcd_list gcdex ground_roots half_gcdex harmonic hermite
    hessian horner hyperexpand idiff igcd ilcm im imageset integer_log integer_nthroot integrate interpolate
    intersection inverse_laplace_transform invert is_abundant is_amicable is_carmichael is_convex is_decreasing
    is_deficient is_increasing is_mersenne_prime is_monotonic is_nthpow_residue is_perfect is_primitive_root
    is_quad_residue is_strictly_decreasing is_strictly_increasing isprime jacobi_symbol jordan_cell laguerre
    laplace_transform lcm lcm_list legendre legendre_symbol limit limit_seq line_integrate linear_eq_to_matrix linsolve
    ln log logcombine loggamma lowergamma lucas maximum minimal_polynomial minimum minpoly mobius mod_inverse monic
    motzkin multiplicity n_order nextprime nonlinsolve npartitions nroots nsolve nthroot_mod num_digits numer ones oo
    partition perfect_power periodicity permutedims pi piecewise_fold polygamma polylog posify powdenest powsimp prem
    prevprime prime primefactors primenu primeomega primepi primerange primitive primitive_root primorial product
    proper_divisor_count proper_divisors quadratic_congruence quadratic_residues quo rad radsimp ratsimp re real_root
    real_roots reduce_abs_inequality reduce_inequalities reduced_totient refine rem residue resultant rf root roots
    rot_axis1 rot_axis2 rot_axis3 rsolve sec sech separatevars sequence series sign simplify simplify_logic sin sinc
    singularities sinh solve solve_linear_system solve_poly_inequality solve_poly_system solve_rational_inequalities
    solve_undetermined_coeffs solve_univariate_inequality solveset sqf sqf_list sqrt sqrt_mod sqrtdenest
    stationary_points stieltjes subfactorial subresultants summation symbols tan tanh terms_gcd together total_degree
    totient trace transpose tribonacci trigamma trigsimp true false uppergamma viete wronskian zeros zeta zoo nan
""".split()
STATS = """
    Bernoulli Binomial Coin DiscreteUniform Die E Exponential FiniteRV Geometric Hypergeometric Normal P Poisson
    Uniform correlation covariance density median std variance
""".split()
NAMING = frozenset(
    "Dummy Function MatrixSymbol Symbol symbols".split()
    + "Bernoulli Binomial Coin DiscreteUniform Die Exponential FiniteRV Geometric Hypergeometric Normal Poisson".split()
    + ["Uniform"]
)
"""Functions whose first argument names symbols, which is passed on unchanged."""
LETTERS = "a b c d e f g h i j k l m n o p q r s t u v w x y z alpha beta gamma delta theta lamda mu phi omega".split()
MODULES: Mapping[str, Sequence[str]] = {
    "sympy": SYMPY,
    "sympy.stats": STATS,
    "sympy.abc": LETTERS,
    "math": "acos asin atan atan2 ceil comb cos degrees dist e exp factorial floor gcd hypot inf isclose isqrt lcm log"
    " log10 log2 perm pi pow prod radians sin sqrt tan tau trunc".split(),
    "fractions": ["Fraction"],
    "itertools": "accumulate combinations combinations_with_replacement permutations product".split(),
}
"""Names that a program may import, by module; all other imports are refused."""
BUILT_IN = (
    "abs all any bool complex divmod enumerate filter float frozenset int len list map max min pow range reversed"
    " round set sorted sum tuple zip".split()
)
ATTRIBUTES = frozenset(
    """
    C H T a add adjugate all_coeffs all_roots altitudes angle_between angles apart append applyfunc area args
    as_coeff_Mul as_expr as_independent as_numer_denom as_poly as_real_imag as_set b bisectors boundary cancel
    canonical center centroid charpoly circumcenter circumcircle circumference circumradius clear closure coeff
    coeff_monomial coeffs cofactor cofactor_matrix collect cols columnspace combsimp complement conjugate contains copy
    count cross degree denominator det diagonalize diff difference direction discriminant distance doit dot
    eccentricity eigenvals eigenvects end equals equation evalf exclude exp expand extend extract factor factor_list
    factors false foci free_symbols gcd get hradius imag incenter incircle index inf inradius insert integrate
    intersect intersection intersects inv is_complex is_composite is_even is_finite is_infinite is_integer
    is_irrational is_negative is_nonnegative is_nonzero is_number is_odd is_parallel is_perpendicular is_polynomial
    is_positive is_prime is_rational is_real is_similar is_subset is_superset is_symmetric is_zero items keys lcm
    left_open length lhs limit limits logcombine medians midpoint minor monoms n norm normal nroots nullspace numerator
    orthocenter p parallel_line perimeter perpendicular_bisector perpendicular_line perpendicular_segment pop powsimp
    primitive projection q quo radius radsimp rank ratsimp real real_roots reflect rem remove removeO reverse rhs
    right_open root roots rotate round row row_del row_join rowspace rref scale series shape sides simplify size slope
    solve sort start subs sup symmetric_difference tangent_lines terms together trace transpose trigsimp true truncate
    union values variables vertices vradius x xreplace y z Complexes EmptySet Exp1 Half ImaginaryUnit Infinity Integers
    NaN Naturals Naturals0 NegativeInfinity NegativeOne One Pi Rationals Reals Zero
    """.split()
)
"""Attributes and methods of values; the functions of a module are named in `MODULES`. None makes a text of others."""
KEYWORDS = frozenset(
    """
    algebraic antihermitian commutative complex composite even extended_real finite hermitian imaginary infinite integer
    irrational negative nonnegative nonpositive nonzero odd positive prime rational real zero
    check cubics deep default dict dir dirs domain evaluate extension force full gens greedy initial key limit
    maxsteps minimal modulus multiple n order prec quartics quintics radical ratio repeat reverse set simplify start
    strict symbols tol trig verify visual warn
    """.split()
)
"""Keywords of a call, besides the parameters of the program's own functions: the assumptions about a symbol first."""
NODES = (
    ast.Module, ast.Assign, ast.AugAssign, ast.Expr, ast.If, ast.For, ast.While, ast.Break, ast.Continue, ast.Pass,
    ast.FunctionDef, ast.Return, ast.arguments, ast.arg, ast.Lambda, ast.Name, ast.Constant, ast.BinOp, ast.UnaryOp,
    ast.BoolOp, ast.Compare, ast.IfExp, ast.Call, ast.keyword, ast.Attribute, ast.Subscript, ast.Slice, ast.Starred,
    ast.Tuple, ast.List, ast.Set, ast.Dict, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp,
    ast.comprehension, ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.expr_context,
)  # fmt: skip
"""Parts of Python's syntax that a program may use."""
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_NAME_OR_RANGE = re.compile(r"([A-Za-z][A-Za-z0-9_]*?)(?:[0-9]*:[0-9]+)?")
"""Names for `symbols`. A range counts with digits: one of letters, as in `eva:ll`, would make other names."""
_NUMBER = re.compile(r"[0-9+./-]*")


def run(program: str) -> str:
    """Run a program and return its result as LaTeX.

    Only a child that `program_process` has prepared should call it: it may be killed, and SymPy runs some of what it
    prints there only after a check.

    Raises:
        RefusedProgram: the program was not run.
        NoAnswer: it assigned nothing to `answer`, or a value that cannot be written down.
        Exception: any exception of the program, including MemoryError and RecursionError.
    """
    tree, values = _check(program)
    values["__builtins__"] = {}
    exec(compile(tree, "program", "exec"), values)  # noqa: S102  # its names have been checked
    if RESULT not in values:
        raise NoAnswer(f"the program assigns nothing to `{RESULT}`")
    output = _write_down(values[RESULT])
    if len(output) > LONGEST_OUTPUT:
        raise NoAnswer(f"the answer has more than {LONGEST_OUTPUT:,} characters")
    return output


def _write_down(value: object) -> str:
    import sympy

    match value:
        case None | list() | tuple() | set() | frozenset() | dict() if not value:
            raise NoAnswer("the answer is empty")
        case dict():
            return ", ".join(f"{_write_down(key)} = {_write_down(each)}" for key, each in value.items())
        case set() | frozenset():
            return ", ".join(sorted(map(_write_down, value)))
        case list() | tuple():
            return ", ".join(map(_write_down, value))
        case bool() | int() | float() | complex() | str():
            return str(int(value) if isinstance(value, float) and value.is_integer() else value)
        case Fraction() | sympy.Basic() | sympy.MatrixBase():
            return str(sympy.latex(sympy.sympify(value)))
        case _:
            raise NoAnswer(f"the answer is of type {type(value).__name__}, which cannot be written down")


@cache
def load_values() -> Mapping[str, dict[str, Any]]:
    """Return what each module of `MODULES` means in a program, by name; importing SymPy takes seconds."""
    import sympy
    import sympy.abc
    import sympy.stats

    modules = {
        "sympy": sympy, "sympy.stats": sympy.stats, "sympy.abc": sympy.abc, "math": math, "itertools": itertools,
        "fractions": SimpleNamespace(Fraction=Fraction),
    }  # fmt: skip
    values = {module: {name: getattr(modules[module], name) for name in names} for module, names in MODULES.items()}
    values["sympy"]["Function"] = lambda name: sympy.Function(name)  # no keyword may become an attribute of its class
    return values


def _to_digits(number: Any) -> str:
    """Stand for `str`, of whole numbers only: any other text could be read as an expression."""
    return str(operator.index(number))


def _make_dict(pairs: Any = ()) -> dict[Any, Any]:
    """Stand for `dict`, whose keywords would become texts."""
    return dict(pairs)


# Read a program, and refuse it unless every part is allowed. Texts cannot reach functions that parse expressions: a
# text is a number, or the name of a symbol in a call that takes it unchanged.


def _check(program: str) -> tuple[ast.Module, dict[str, Any]]:
    """Return the program's tree without its imports, and the values that it may name.

    Raises:
        RefusedProgram: a part of it is not allowed.
    """
    if len(program) > LONGEST:
        raise RefusedProgram(f"the program has more than {LONGEST:,} characters")
    try:
        tree = _WithoutTexts().visit(ast.parse(program))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise RefusedProgram(f"the program cannot be read: {error}") from error
    modules = load_values()
    values = {name: getattr(builtins, name) for name in BUILT_IN} | modules["sympy"]
    values |= {"dict": _make_dict, "str": _to_digits}
    aliases = {"sympy": "sympy", "sp": "sympy", "math": "math"}  # as if they had been imported
    body: list[ast.stmt] = []
    for statement in tree.body:
        match statement:
            case ast.Import(names=names):
                aliases |= {
                    _check_bound_name(each.asname or each.name, each): _check_module(each.name, each) for each in names
                }
            case ast.ImportFrom(module=module, names=names, level=0):
                imported = _import_names(module or "", names)
                values |= imported
                aliases = {alias: known for alias, known in aliases.items() if alias not in imported}
            case _:
                body.append(statement)
    tree.body = body
    _Checker(values.keys(), aliases).check(tree)
    values |= {alias: SimpleNamespace(**modules[module]) for alias, module in aliases.items()}
    return ast.fix_missing_locations(tree), values


def _check_module(name: str, at: ast.AST) -> str:
    if name not in MODULES:
        raise _refuse(at, f"the import of {name!r}")
    return name


def _import_names(module: str, names: Sequence[ast.alias]) -> dict[str, Any]:
    """Return the values of `from module import names`; every module of SymPy has the names of SymPy itself."""
    if module.startswith("sympy.") and module not in MODULES:
        module = "sympy"
    known = load_values()[_check_module(module, names[0])]
    found: dict[str, Any] = {}
    for each in names:
        if each.name == "*" and module == "sympy":
            found |= known
        elif each.name not in known:
            raise _refuse(each, f"the import of {each.name!r} from {module!r}")
        else:
            found[each.name if each.asname is None else _check_bound_name(each.asname, each)] = known[each.name]
    return found


def _check_bound_name(name: str, at: ast.AST) -> str:
    """Return a name that the program may give a value: no private one, and none by which symbols are named."""
    if name in NAMING or name == "print" or (name.startswith("_") and name != "_") or "__" in name or "." in name:
        raise _refuse(at, f"another value for {name!r}")
    return name


def _refuse(at: ast.AST, what: str) -> RefusedProgram:
    return RefusedProgram(f"line {getattr(at, 'lineno', 0)}: {what} is not allowed")


class _WithoutTexts(ast.NodeTransformer):
    """Removes statements without effect: calls of `print`, and texts as statements."""

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        match node.value:
            case ast.Constant() | ast.Call(func=ast.Name(id="print")):
                return ast.copy_location(ast.Pass(), node)
            case _:
                return node


class _Checker:
    def __init__(self, known: Iterable[str], aliases: Mapping[str, str]) -> None:
        self._known = {*known, *aliases}
        self._aliases = aliases
        self._parameters: dict[str, set[str]] = {}  # of functions that the program alone defines, and once

    def check(self, tree: ast.Module) -> None:
        """Check all bound names first, since a function may use a name that is assigned below it."""
        bound: Counter[str] = Counter()
        for node in ast.walk(tree):
            match node:
                case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) | ast.FunctionDef(name=name):
                    if name in self._aliases:
                        raise _refuse(node, f"another value for {name!r}")
                    bound[_check_bound_name(name, node)] += 1
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        self._parameters = {
            node.name: {each.arg for each in node.args.args + node.args.kwonlyargs}
            for node in functions
            if bound[node.name] == 1 and node.name not in self._known
        }
        self._known |= bound.keys()
        self._visit(tree, 0)

    def _visit(self, node: ast.AST, depth: int) -> None:
        if depth > DEEPEST:
            raise _refuse(node, f"a nesting of more than {DEEPEST} levels")
        if not isinstance(node, NODES):
            raise _refuse(node, f"`{type(node).__name__}`")
        self._check_one(node)
        named = self._check_name_given(node) if isinstance(node, ast.Call) else None
        for child in ast.iter_child_nodes(node):
            if child is not named:
                self._visit(child, depth + 1)

    def _check_one(self, node: ast.AST) -> None:
        match node:
            case ast.Name(id=name) if name not in self._known:
                raise _refuse(node, f"the name {name!r}")
            case ast.Constant(value=str() as text) if not _NUMBER.fullmatch(text):
                raise _refuse(node, f"the text {text[:40]!r}")
            case ast.Constant(value=value) if isinstance(value, bytes) or value is ...:
                raise _refuse(node, f"the constant {str(value)[:40]}")
            case ast.Attribute(attr=attribute, ctx=context) if not (
                isinstance(context, ast.Load) and (attribute in ATTRIBUTES or attribute in self._list_names(node.value))
            ):
                raise _refuse(node, f"the attribute {attribute!r}")
            case ast.FunctionDef(decorator_list=[_, *_]):
                raise _refuse(node, "a decorator")
            case ast.arguments(kwarg=ast.arg()):
                raise _refuse(node, "`**`")
            case ast.Call():
                self._check_keywords(node)

    def _check_name_given(self, node: ast.Call) -> ast.AST | None:
        """Check and return the first argument of a call that names symbols; None for another call, or without one."""
        if not self._names_symbols(node.func) or not node.args:
            return None
        first = node.args[0]
        if not isinstance(first, ast.Constant) or not isinstance(first.value, str):
            raise _refuse(first, "a name that is not written as a text")
        self._check_symbols(first, first.value, several=self._names_symbols(node.func, {"symbols"}))
        return first

    def _check_keywords(self, node: ast.Call) -> None:
        """Allow what functions of SymPy need, and parameters of the program's own functions in calls of these."""
        own = self._parameters.get(node.func.id, ()) if isinstance(node.func, ast.Name) else ()
        for each in node.keywords:
            if each.arg is None or each.arg not in (*KEYWORDS, *own):
                raise _refuse(each, f"the keyword {each.arg!r}" if each.arg else "`**`")

    def _list_names(self, value: ast.expr) -> Sequence[str]:
        """Return the allowed names of the module that `value` refers to; empty if it is not a module."""
        return MODULES[self._aliases[value.id]] if isinstance(value, ast.Name) and value.id in self._aliases else ()

    def _names_symbols(self, called: ast.expr, among: Collection[str] = NAMING) -> bool:
        match called:
            case ast.Name(id=name):
                return name in among
            case ast.Attribute(value=value, attr=name):
                return name in among and name in self._list_names(value)
            case _:
                return False

    def _check_symbols(self, node: ast.AST, text: str, *, several: bool) -> None:
        """Refuse keywords of Python, because SymPy prints names unchanged into code that it runs."""
        names = re.split("[ ,]+", text.strip()) if several else [text]
        for name in names:
            found = (_NAME_OR_RANGE if several else _NAME).fullmatch(name)
            word = found[found.lastindex or 0] if found else ""
            if not word or "__" in word or keyword.iskeyword(word) or word in vars(builtins):
                raise _refuse(node, f"the symbol {text[:40]!r}")
