"""Programs that a model wrote: what they compute, what is refused, and what one that gets past that can reach."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from services.judge.__main__ import make_executors
from services.judge.executors import ProgramExecutor
from services.judge.pools import ProgramPool
from shared.calls import Request
from shared.mathtext.programs import LONGEST
from shared.replies import Executed, Failure, FailureKind, Reply
from shared.runtime.pins import BUILT_IN, INTERPRETER
from shared.runtime.process import Tools
from shared.runtime.queue import AnsweredCall, ClaimedCall
from shared.settings import Settings, Workers

pytestmark = pytest.mark.anyio

SQUARES = "answer = sum(k**2 for k in range(1, 21))"
X = "x = symbols('x')\n"
HONEST = {
    SQUARES: "2870",
    "import sympy as sp\nx = sp.Symbol('x')\nprint(f'so {x!r}')\nanswer = sp.solve(x**2 - 5*x + 6, x)": "2, 3",
    "from sympy import *\nx, y = symbols('x y')\nanswer = solve([x + y - 3, x - y - 1], [x, y])": "x = 2, y = 1",
    "from sympy import symbols, solve\nx = symbols('x', positive=True)\nanswer = solve(x**2 - 2, x)[0]": r"\sqrt{2}",
    f"{X}answer = integrate(exp(-x**2), (x, -oo, oo))": r"\sqrt{\pi}",
    f"{X}answer = integrate(sin(x)/x, (x, 0, oo))": r"\frac{\pi}{2}",
    f"{X}answer = diff(x**3*sin(x), x).subs(x, pi)": r"- \pi^{3}",
    f"{X}answer = limit(sin(x)/x, x, 0) + limit(1/x, x, oo, '-')": "1",
    f"{X}answer = summation(1/x**2, (x, 1, oo))": r"\frac{\pi^{2}}{6}",
    f"{X}answer = simplify((x**2 - 1)/(x - 1))": "x + 1",
    f"{X}answer = series(exp(x), x, 0, 3)": r"1 + x + \frac{x^{2}}{2} + O\left(x^{3}\right)",
    f"{X}answer = solveset(x**2 > 4, x, domain=S.Reals)": r"\left(-\infty, -2\right) \cup \left(2, \infty\right)",
    f"{X}answer = round(nsolve(cos(x) - x, x, 1), 4)": "0.7391",
    f"{X}answer = maximum(sin(x), x, Interval(0, pi))": "1",
    f"{X}answer = [r.n(4) for r in real_roots(x**3 - 3*x + 1)]": "-1.879, 0.3473, 1.532",
    f"{X}f = Function('f')\nanswer = dsolve(f(x).diff(x) - f(x), f(x)).rhs": "C_{1} e^{x}",
    "n = symbols('n')\na = Function('a')\nanswer = rsolve(a(n) - 2*a(n - 1), a(n), {a(0): 3})": "3 \\cdot 2^{n}",
    "answer = Matrix([[1, 2], [3, 4]]).inv() * Matrix([1, 1])": r"\left[\begin{matrix}-1\\1\end{matrix}\right]",
    "answer = factorint(360)": "2 = 3, 3 = 2, 5 = 1",
    "answer = mod_inverse(3, 11) + totient(100) + nextprime(90)": "141",
    "answer = binomial(10, 3) + fibonacci(10) + npartitions(5)": "182",
    "answer = Triangle(Point(0, 0), Point(4, 0), Point(0, 3)).area": "6",
    "answer = Circle(Point(0, 0), 5).circumference": r"10 \pi",
    "from sympy.stats import Die, P, E\nX = Die('X', 6)\nanswer = [P(X > 4), E(X)]": r"\frac{1}{3}, \frac{7}{2}",
    "from sympy.stats import Normal, P\nX = Normal('X', 0, 1)\nanswer = P(X > 0)": r"\frac{1}{2}",
    "import math\nfrom fractions import Fraction\nanswer = Fraction(1, 3) * math.comb(4, 2)": "2",
    "from itertools import combinations\nanswer = len([c for c in combinations(range(6), 2) if sum(c) == 5])": "3",
    "answer = sum(int(d) for d in str(2**100))": "115",
    "def f(n):\n    '''f(\"0\") is 1'''\n    return 1 if n < 2 else n*f(n - 1)\nanswer = f(5) / 2": "60",
    "total = 0\nwhile True:\n    total += 1\n    if total > 9:\n        break\nanswer = total": "10",
    "x1, x2, x3 = symbols('x1:4', real=True)\nanswer = expand((x1 + x2)*x3).coeff(x3)": "x_{1} + x_{2}",
    "x, y = symbols('x y')\nanswer = nsolve([x + y - 3, x - y], [x, y], [1, 1])[0]": "1.5",
    "a, b, c = symbols('a b c')\nanswer = nsolve([a + b + 2*c - 4, a - b, a*c - 1], [a, b, c], [1, 1, 1])[0]": "1.0",
    f"{X}answer = [round(nsolve(f, x, 2), 3) for f in [x**2 - 1.5, LambertW(x) - 1, digamma(x) - 1]]": (
        "1.225, 2.718, 3.203"
    ),
    f"{X}answer = Sum(Float('1.5')/x**2, (x, 1, oo)).evalf(4)": "2.467",
    f"{X}answer = nsolve(integrate(exp(-x**2), (x, 0, x)) - Rational(1, 2), x, 0.5).n(4)": "0.551",
    "n = symbols('n', integer=True, nonnegative=True)\nanswer = Sum(1/factorial(n), (n, 0, oo)).evalf(5)": "2.7183",
    f"{X}answer = real_roots(x**5 - x - 1)[0].evalf(5)": "1.1673",
    "def f(n, step=1):\n    return n + step\nanswer = f(n=1, step=2)": "3",
    "from sympy import sin as sp\nanswer = sp(0)": "0",
    "from sympy.abc import x, y\nanswer = (x + y).subs({x: 1, y: Rational(1, 2)}).evalf(3)": "1.5",
}
"""Programs with their outputs; those of SymPy need modules that it imports late."""
REFUSED = [
    "import os\nanswer = os.getpid()",
    "from os import system",
    "import sympy.core.sympify",
    "from sympy import sympify",
    "from sympy.parsing.sympy_parser import parse_expr",
    "from sympy import lambdify",
    "from sympy import Tuple as Symbol\nanswer = Symbol('open')[0]",
    "from math import *",
    "def f():\n    import os\nanswer = f()",
    "__import__('os').system('id')",
    "answer = ().__class__.__mro__[1].__subclasses__()",
    "x = symbols('x')\nanswer = x.func.__globals__",
    "x = symbols('x')\nanswer = x.func",
    "answer = symbols('x').__class__",
    "answer = (lambda: 0).__code__",
    "answer = sum.__self__",
    "answer = (k for k in [1]).gi_frame",
    "answer = eval('1+1')",
    "exec('answer = 1')",
    "answer = compile",
    "answer = getattr(1, 'real')",
    "answer = globals()",
    "answer = __builtins__",
    "answer = type(1)",
    "answer = input()",
    "answer = open('/etc/passwd').read()",
    "answer = sympify(\"__import__('os').system('id')\")",
    "answer = S(\"__import__('os').system('id')\")",
    "answer = S('open')",
    "answer = solve(\"__import__('os').system('id')\")",
    "answer = Symbol(\"__import__('os')\")",
    "answer = Symbol('x.__class__')",
    "answer = Function('exec')(symbols('x'))",
    "answer = Tuple(*symbols('abc', cls=list))",
    # A range of letters, which SymPy would expand to other names.
    "e = symbols('eva:ll', cls=Function)[0]\nx = symbols('x')\nanswer = nsolve(e(40) + x, x, 1)",
    "answer = symbols('ope:nn')",
    "answer = symbols('x, eva:ll')",
    # Words of Python, which SymPy would print into code that it runs.
    "x = symbols('x')\nanswer = nsolve(Function('lambda s:0 or fsum')(x) + x, x, 1)",
    "answer = MatrixSymbol('lambda p, q, domain:0 or domain', 1, 1)",
    "answer = symbols('x, lambda')",
    "answer = Symbol('x y')",
    "answer = Symbol('x1:4')",
    "answer = Symbol('_x')",
    "answer = Symbol(*['1'])",
    "answer = Symbol(symbols('x'))",
    # What an attacker wrote with the functions of mpmath.
    "f = Function('identify')(7, Tuple(Symbol('o') + Symbol('lambda')))\nanswer = nsolve([f], [Symbol('x')], [1])",
    # Keywords that would become attributes of a class.
    "answer = Function('f', _latex=lambda self, printer: 1)(1)",
    "answer = Function('f', __getattr__=lambda self, name: name)(1)",
    "answer = Function('f', bases=(list,))",
    "def g(bases):\n    return bases\nanswer = Symbol('f', bases=(list,))",
    "answer = Tuple(*dict(open=1))",
    "x = symbols('x')\nif 0:\n    def nsolve(modules):\n        return 0\nanswer = nsolve(x - 1, 1, modules=[sympy])",
    "f = symbols\ndef f(cls):\n    return 1\nanswer = f('1', cls=lambda name: name)",
    "def f(cls):\n    return 1\ndef f(dx):\n    return 1\nanswer = f(cls=1)",
    "import sympy.stats\nanswer = 1",
    "Symbol = Tuple\nanswer = Symbol('open')[0]",
    "def Symbol(x):\n    return Tuple(x)\nanswer = Symbol('open')",
    "def f(**names):\n    return Tuple(*names)\nanswer = f(open=1)",
    "answer = f(**{1: 2})",
    "sp = [1]\nanswer = sp",
    "answer = lambdify([], 1)",
    "answer = srepr(symbols('x'))",
    "preview(1, viewer='file', filename='/tmp/x')",
    "answer = plot(1)",
    "init_printing()",
    "import pickle\nanswer = pickle.loads(b'cos\\nsystem\\n(S\"id\"\\ntR.')",
    "answer = '{0.__class__}'.format(1)",
    "answer = '%s' % 1",
    "answer = Tuple('1111'.translate({49: 40}))",
    "answer = Symbol('1'.join(['2', '3']))",
    "answer = MatrixSymbol('A', 'n', 2)",
    "answer = chr(40)",
    "d = {}\nd.update(open=1)\nanswer = Tuple(*d)",
    "def f[T](x: T):\n    return x\nanswer = f(1)",
    "def f(x=eval):\n    return x\nanswer = f()",
    "def f(x: eval):\n    return x\nanswer = f(1)",
    "answer = [x for x in ().__class__.__bases__]",
    "answer = max([1], key=eval)",
    "answer = solve.__wrapped__",
    "answer = S.register",
    "answer = sympy.core.sympify.sympify",
    "answer = math.__loader__",
    "answer = _",
    "answer = Matrix([1]).func",
    "x = 1\nanswer = f'{x.__class__}'",
    "answer = b'a'",
    "answer = ...",
    "class A:\n    pass\nanswer = A()",
    "@abs\ndef f():\n    return 1\nanswer = f()",
    "try:\n    answer = 1\nexcept Exception:\n    pass",
    "with 1 as answer:\n    pass",
    "async def f():\n    pass",
    "def f():\n    global answer\n    answer = 1\nf()",
    "x = 1\ndel x",
    "answer = (y := 1)",
    "match 1:\n    case answer:\n        pass",
    "x = symbols('x')\nx.real = 1",
    "assert 1",
    "raise 1",
    "answer = (",
    "answer = 1\0",
    "answer = 1 # \ud800",
    f"answer = {'(' * 300}1{')' * 300}",
    f"answer = {'-' * 900}1",
    f"answer = {'+'.join('1' * 70)}",
    f"answer = {'[' * 61}{']' * 61}",
    "answer = " + "1 + " * (1 << 18) + "1",
    "ａｎｓｗｅｒ = ｏｐｅｎ('1')",
]
FAILED = {
    "def f(n):\n    return f(n + 1)\nanswer = f(0)": (FailureKind.PROGRAM_ERROR, "RecursionError"),
    "answer = 1 / 0": (FailureKind.PROGRAM_ERROR, "ZeroDivisionError: division by zero"),
    "x = 1": (FailureKind.PROGRAM_ERROR, "the program assigns nothing to `answer`"),
    "print('{0.__class__}'.format(1), 'x' * 10**9)": (FailureKind.PROGRAM_ERROR, "assigns nothing"),
    "answer = []": (FailureKind.PROGRAM_ERROR, "the answer is empty"),
    "answer = abs": (FailureKind.PROGRAM_ERROR, "of type builtin_function_or_method"),
    "answer = 10**2000": (FailureKind.PROGRAM_ERROR, "more than 1,000 characters"),
    "answer = 10**5000": (FailureKind.PROGRAM_ERROR, "Exceeds the limit"),
    "answer = str(symbols('x'))": (FailureKind.PROGRAM_ERROR, "cannot be interpreted as an integer"),
    "answer = Tuple('1+1')": (FailureKind.PROGRAM_ERROR, "SympifyError"),
    "def f(real):\n    return Function\nanswer = f(1)(symbols('f'), real=1)": (
        FailureKind.PROGRAM_ERROR,
        "unexpected keyword argument",
    ),
    f"{X}answer = nsolve(Function('timing')(x) + x, x, 1)": (FailureKind.PROGRAM_ERROR, "it names 'timing'"),
    f"{X}f = Function('identify')(7, Tuple(Function('nstr')(Symbol('o'))))\nanswer = nsolve([f + x], [x], [1])": (
        FailureKind.PROGRAM_ERROR,
        "it names 'identify'",
    ),
    f"{X}answer = Sum(Function('fromfile')(3)**x/factorial(x), (x, 0, oo)).evalf()": (
        FailureKind.PROGRAM_ERROR,
        "it names 'fromfile'",
    ),
    "answer = Function('f', (list,))": (FailureKind.PROGRAM_ERROR, "positional argument"),
    "answer = [0] * 10**12": (FailureKind.PROGRAM_MEMORY, "more than 1024 MiB"),
    "answer = '1' * 10**10": (FailureKind.PROGRAM_MEMORY, "more than 1024 MiB"),
    "a = [1]\nwhile True:\n    a += a": (FailureKind.PROGRAM_MEMORY, "more than 1024 MiB"),
}
"""Programs that may run, with the kind of their failure and a part of its detail."""
ENDLESS = [
    "while True:\n    pass",
    "for k in range(10**12):\n    print('1' * 10**9)",
    "answer = 10**10**8",
    "answer = 10**10**10",
    "answer = factorial(10**9)",
]


async def execute(pool: ProgramPool, asked: Iterable[str]) -> dict[str, Executed | Failure]:
    return {program: await pool.execute(program) for program in asked}


async def test_honest_programs_compute_their_answers() -> None:
    async with ProgramPool(1, deadline_s=60) as pool:
        found = await execute(pool, HONEST)
    wrong = {program: reply for program, reply in found.items() if reply != Executed(output=HONEST[program])}
    assert wrong == {}


async def test_what_could_reach_beyond_mathematics_is_refused_before_it_runs() -> None:
    async with ProgramPool(1, deadline_s=10) as pool:
        before = await pool.execute("answer = 1")
        pids = pool.pids
        found = await execute(pool, REFUSED)
        assert before == Executed(output="1")
        wrong = {
            program[:80]: reply
            for program, reply in found.items()
            if not isinstance(reply, Failure) or reply.kind is not FailureKind.REFUSED or not reply.detail
        }
        assert wrong == {}
        assert await pool.execute(SQUARES) == Executed(output="2870")
        assert pool.pids == pids


async def test_a_program_that_fails_or_takes_too_much_memory_ends_alone() -> None:
    async with ProgramPool(1, deadline_s=60) as pool:
        await pool.start()
        pids = pool.pids
        found = await execute(pool, FAILED)
        wrong = {
            program: reply
            for program, reply in found.items()
            if not isinstance(reply, Failure)
            or reply.kind is not FAILED[program][0]
            or FAILED[program][1] not in reply.detail
        }
        assert wrong == {}
        assert await pool.execute(SQUARES) == Executed(output="2870")
        assert pool.pids == pids


async def test_a_program_that_takes_too_long_ends_alone() -> None:
    timeout = Failure(kind=FailureKind.PROGRAM_TIMEOUT, detail="it did not end within 2 s of processor time")
    async with ProgramPool(1, deadline_s=2) as pool:
        await pool.start()
        pids = pool.pids
        assert await execute(pool, ENDLESS) == dict.fromkeys(ENDLESS, timeout)
        assert await pool.execute(SQUARES) == Executed(output="2870")
        assert pool.pids == pids


async def test_a_program_leaves_nothing_to_the_next_one() -> None:
    async with ProgramPool(1, deadline_s=10) as pool:
        assert await pool.execute("left = 1\nanswer = 1") == Executed(output="1")
        reply = await pool.execute("answer = left")
        assert reply == Failure(kind=FailureKind.REFUSED, detail="line 1: the name 'left' is not allowed")
        assert await pool.execute("") == Failure(
            kind=FailureKind.PROGRAM_ERROR, detail="the program assigns nothing to `answer`"
        )
        assert await pool.execute("#" * LONGEST + "\n") == Failure(
            kind=FailureKind.REFUSED, detail="the program has more than 4,000 characters"
        )


async def test_a_process_that_dies_at_work_is_replaced() -> None:
    async with ProgramPool(1, deadline_s=60) as pool:
        await pool.start()
        (victim,) = pool.pids
        executing = asyncio.create_task(pool.execute("while True:\n    pass"))
        await asyncio.sleep(0.1)
        os.kill(victim, signal.SIGKILL)
        detail = "the interpreter ended with exit status -9"
        assert await executing == Failure(kind=FailureKind.BACKEND_ERROR, detail=detail)
        assert await pool.execute(SQUARES) == Executed(output="2870")


async def test_calls_of_one_chunk_are_answered_each_with_its_program() -> None:
    requests = [Request(role="execute", model="", values={"program": f"answer = {number}"}) for number in range(3)]
    calls = [
        ClaimedCall(id=number, key=b"", role="execute", model_id=1, request=msgspec.json.encode(each))
        for number, each in enumerate(requests)
    ]
    async with ProgramPool(2, deadline_s=60) as pool:
        answers = [answer async for answer in ProgramExecutor(pool).run(calls, None)]
    replies: dict[int, Reply] = {each.call_id: each.reply for each in answers if isinstance(each, AnsweredCall)}
    assert replies == {number: Executed(output=str(number)) for number in range(3)}
    assert BUILT_IN["execute"] is INTERPRETER


async def test_with_no_process_for_programs_none_is_run() -> None:
    nothing: Any = None
    settings = Settings(workers=Workers(programs=0))
    executors = await make_executors(Tools(settings=settings, database=nothing, guards=nothing))
    request = msgspec.json.encode(Request(role="execute", model="", values={"program": SQUARES}))
    call = ClaimedCall(id=1, key=b"", role="execute", model_id=1, request=request)
    (answer,) = [answer async for answer in executors["execute"].run([call], None)]
    assert isinstance(answer, AnsweredCall)
    assert isinstance(answer.reply, Failure)
    assert answer.reply.kind is FailureKind.NOT_CONFIGURED


# The limits of the process, for a program that should get past the check: raw Python takes its place.

ESCAPE = """
import os, socket
from services.judge.program_process import load, run_confined
from shared.replies import Executed

load(5.0)

def attempt():
    attempts = {
        "file": lambda: open("/etc/passwd"),
        "own file": lambda: open("left", "w"),
        "socket": lambda: socket.socket(),
        "pair": lambda: socket.socketpair(),
        "pipe": lambda: os.pipe(),
        "module": lambda: __import__("this"),
        "list": lambda: os.listdir("/"),
        "standard output": lambda: os.write(1, b"x"),
        "standard error": lambda: os.write(2, b"x"),
        "standard input": lambda: os.read(0, 1),
        "environment": lambda: os.environ["SECRET"],
    }
    for name, work in attempts.items():
        try:
            work()
        except Exception:
            continue
        return Executed(output=f"reached {name}")
    return Executed(output="reached nothing")

print(run_confined(attempt, 5.0).output)
print(run_confined(lambda: os._exit(3), 5.0))
print(run_confined(lambda: os.kill(os.getpid(), 11), 5.0))

def run_printed():
    '''What `nsolve` does, given a function whose name is one of Python's.'''
    import sympy

    x = sympy.Symbol("x")
    return Executed(output=str(sympy.nsolve(sympy.Function(name)(x) + x, x, 1)))

for name in ("eval", "(lambda q: q)", "cos(__import__('os').getpid()) + abs"):
    print(run_confined(run_printed, 5.0))
"""


def test_a_program_that_got_past_the_check_could_open_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ESCAPE], capture_output=True, text=True, env={**os.environ, "SECRET": "s"}, check=True
    )
    first, *deaths = done.stdout.splitlines()
    assert first == "reached nothing"
    assert [death for death in deaths if "program_error" not in death] == []
    assert ["cannot be computed as numbers" in death for death in deaths[-3:]] == [True] * 3
