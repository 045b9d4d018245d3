"""The child of `ProgramPool`: it runs each program of a model in its own fork, which has given up its rights.

It reads {"program"} and answers an `Executed` or a `Failure`. A fork costs milliseconds where SymPy costs seconds to
import, and leaves no trace of a program to the next one. `shared/mathtext/programs.py` refuses most programs that mean
harm; the limits here hold for a program that should get past it.
"""

import importlib
import math
import os
import pkgutil
import re
import resource
import signal
import sys
import warnings
from collections.abc import Callable
from types import CodeType, ModuleType
from typing import Any

import msgspec

from shared.mathtext import programs
from shared.processes.children import die_with, leave_network, serve
from shared.replies import Executed, Failure, FailureKind

MEMORY_BYTES = 1 << 30
"""Limit of a program's address space, of which Python with SymPy takes a quarter."""
LONGEST_REPLY = 1 << 13
"""Bytes of a fork's reply; the line that the pool reads may be eight times as long."""
LONGEST_MESSAGE = 500
"""Characters of an error's message that are kept."""
TIMED_OUT = (signal.SIGPROF, signal.SIGXCPU)
NOT_CONFINED = 111
"""Exit status of a fork that could not give up its rights, and ran nothing."""
UNUSED = (
    "_compilation", "autowrap", "benchmarking", "benchmarks", "biomechanics", "categories", "codegen", "conftest",
    "continuum_mechanics", "control", "crypto", "diffgeom", "galgebra", "hep", "hyperexpand_doc", "interactive",
    "liealgebras", "magic", "matchpy_connector", "mechanics", "meijerint_doc", "optics", "parsing", "pkgdata",
    "plotting", "pytest", "quantum", "randtest", "release", "runtests", "sampling", "sandbox", "testing", "tests",
    "this", "timeutils", "tmpfiles", "trace",
)  # fmt: skip
"""Modules of SymPy that no program needs. All others are imported before the first program, since a program can open
no file; some of these import NumPy, which starts threads, or warn. It is `programs.SYMPY` that keeps programs out."""

OTHER_PRINTED_NAMES = {
    "ImmutableDenseMatrix", "ImmutableMatrix", "_lambdifygenerated", "harmonic", "im", "j", "matrix", "mpc", "mpf",
    "phi", "polygamma", "polylog", "re", "zeta",
}  # fmt: skip
"""What SymPy prints besides the functions that its printer and `lambdify` know: numbers, matrices, other functions."""
NUMBERS = (int, float, complex, type(None))

_RATIONAL = re.compile(r"-?[0-9]+(?:/[0-9]+)?")

Work = Callable[[], Executed | Failure]


def load(deadline_s: float) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Import the libraries, give up network and environment, and return the function that runs programs."""
    leave_network()
    die_with(os.getppid())
    _import_sympy()
    os.environ.clear()

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        reply = run_confined(lambda: Executed(output=programs.run(request["program"])), deadline_s)
        return dict(msgspec.to_builtins(reply))

    return answer


def _import_sympy() -> None:
    """Import the modules that programs may need, and keep SymPy from reading any text as an expression, which it would
    evaluate."""
    import sympy

    warnings.simplefilter("ignore")
    programs.load_values()
    _import_modules(sympy)

    from sympy.core.sympify import SympifyError
    from sympy.parsing import sympy_parser

    def parse(text: str, *_: object, **__: object) -> object:
        if _RATIONAL.fullmatch(text):  # SymPy itself writes some of its constants so
            return sympy.Rational(text)
        raise SympifyError(text)

    sympy_parser.parse_expr = parse

    _guard_printed_code()


def _guard_printed_code() -> None:
    """Let code that SymPy prints of an expression and runs, as `nsolve` does, name functions of numbers only.

    SymPy prints the name of a symbol or of an unknown function unchanged, even if it is Python code.
    """
    import sympy
    from sympy.core import evalf
    from sympy.polys import rootoftools
    from sympy.printing.pycode import MpmathPrinter

    compile_expression = sympy.lambdify
    # These would choose NumPy, and names of SymPy itself.
    for module in (evalf, rootoftools):
        module.lambdify = lambda names, expression: compile_expression(names, expression, "mpmath")
    compile_expression(sympy.Symbol("x"), sympy.Symbol("x"), "mpmath")  # imports the modules that the code may name
    printer = MpmathPrinter()
    known = (*printer.known_functions.values(), *printer.known_constants.values())
    lambdifying = sys.modules["sympy.utilities.lambdify"]
    allowed = {name.rpartition(".")[2] for name in known} | {*lambdifying.MPMATH_TRANSLATIONS} | OTHER_PRINTED_NAMES

    def is_number(constant: object) -> bool:
        parts = constant if isinstance(constant, tuple) else (constant,)
        return all(isinstance(each, NUMBERS) for each in parts)

    def execute(code: CodeType | str, values: dict[str, Any], local: dict[str, Any]) -> None:
        if isinstance(code, str):
            raise ImportError("only mpmath is known here")  # noqa: TRY004 - what `lambdify` expects
        functions = [each for each in code.co_consts if isinstance(each, CodeType)]
        named = {*code.co_names}.union(*(each.co_names for each in functions))
        constants = [each for function in functions for each in function.co_consts]
        if strange := sorted(named - allowed) or [each for each in constants if not is_number(each)]:
            raise NameError(f"an expression cannot be computed as numbers: it names {str(strange[0])[:40]!r}")
        values = {name: value for name, value in values.items() if name in allowed}
        exec(code, values | {"__builtins__": {"abs": abs, "max": max, "min": min}}, local)  # noqa: S102

    vars(lambdifying)["exec"] = execute


def _import_modules(package: ModuleType) -> None:
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        if module.name.rpartition(".")[2] not in UNUSED:
            imported = importlib.import_module(module.name)
            if module.ispkg:
                _import_modules(imported)


def run_confined(work: Work, deadline_s: float) -> Executed | Failure:
    """Do `work` in a fork for at most `deadline_s` seconds of processor time, without files, network or processes.

    Its exceptions, exceeded limits and crashes become failures with the reason.
    """
    parent = os.getpid()
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = NOT_CONFINED
        try:
            die_with(parent)
            _confine(deadline_s, writer)
            status = 0
            os.write(writer, msgspec.json.encode(_do(work)))
        finally:
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader, "rb") as replies:
        said = replies.read(LONGEST_REPLY)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if -status in TIMED_OUT:
        return Failure(
            kind=FailureKind.PROGRAM_TIMEOUT, detail=f"it did not end within {deadline_s:g} s of processor time"
        )
    try:
        return msgspec.json.decode(said, type=Executed | Failure)
    except msgspec.DecodeError:
        # Neither is the program's fault: the machine may lack memory, and the runtime tries again.
        is_ours = status in (NOT_CONFINED, -signal.SIGKILL)
        kind = FailureKind.BACKEND_ERROR if is_ours else FailureKind.PROGRAM_ERROR
        return Failure(kind=kind, detail=f"its process ended with status {status}")


def _do(work: Work) -> Executed | Failure:
    try:
        return work()
    except programs.RefusedProgram as error:
        kind, detail = FailureKind.REFUSED, str(error)
    except programs.NoAnswer as error:
        kind, detail = FailureKind.PROGRAM_ERROR, str(error)
    except MemoryError:
        kind, detail = FailureKind.PROGRAM_MEMORY, f"it needs more than {MEMORY_BYTES >> 20} MiB"
    except BaseException as error:  # noqa: BLE001  # a program may raise anything
        kind, detail = FailureKind.PROGRAM_ERROR, f"{type(error).__name__}: {error}"
    return Failure(kind=kind, detail=detail[:LONGEST_MESSAGE])


def _confine(deadline_s: float, kept: int) -> None:
    """Close all files but `kept`, and let this process open no other, write none, start no process and end in time."""
    os.closerange(0, kept)
    os.closerange(kept + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    signal.setitimer(signal.ITIMER_PROF, deadline_s)
    seconds = math.ceil(deadline_s) + 1  # for a program that has stopped the timer
    limits = {
        resource.RLIMIT_CPU: (seconds, seconds + 1), resource.RLIMIT_AS: (MEMORY_BYTES, MEMORY_BYTES),
        resource.RLIMIT_FSIZE: (0, 0), resource.RLIMIT_CORE: (0, 0), resource.RLIMIT_NOFILE: (0, 0),
        resource.RLIMIT_NPROC: (0, 0),
    }  # fmt: skip
    for limit, values in limits.items():
        resource.setrlimit(limit, values)


if __name__ == "__main__":
    serve(int(sys.argv[1]), float(sys.argv[2]), lambda: load(float(sys.argv[2])))
