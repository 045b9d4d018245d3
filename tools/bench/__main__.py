"""Run a benchmark: `python -m tools.bench NAME [options]`; `--list` names them all."""

import argparse
import inspect
import pkgutil
from importlib import import_module
from pathlib import Path
from typing import Any

from tools import bench


def main() -> None:
    for module in pkgutil.iter_modules(bench.__path__):
        if module.name != "__main__":
            import_module(f"tools.bench.{module.name}")
    parser = argparse.ArgumentParser(prog="python -m tools.bench", description=bench.__doc__)
    parser.add_argument("--list", action="store_true", help="list the benchmarks with their first lines")
    commands = parser.add_subparsers(dest="name", metavar="NAME")
    for name, function in sorted(bench.BENCHMARKS.items()):
        text = inspect.getdoc(function) or ""
        form = argparse.RawDescriptionHelpFormatter
        command = commands.add_parser(name, help=text.partition("\n")[0], description=text, formatter_class=form)
        for parameter in inspect.signature(function, eval_str=True).parameters.values():
            add_option(command, parameter)
    options = vars(parser.parse_args())
    name = options.pop("name")
    if options.pop("list") or name is None:
        parser.print_help()
    else:
        bench.print_rows(bench.BENCHMARKS[name](**options))


def add_option(command: argparse.ArgumentParser, parameter: inspect.Parameter) -> None:
    """Add a parameter as an option of its type; one without a default is an argument.

    A tuple takes any number of words, and one named `command` all that follow.
    """
    if parameter.default is parameter.empty:
        command.add_argument(parameter.name, type=parameter.annotation)
        return
    flag, default = f"--{parameter.name.replace('_', '-')}", parameter.default
    more: dict[str, Any] = {"type": Path if default is None else type(default)}
    if isinstance(default, bool):
        more = {"action": "store_true"}
    elif isinstance(default, tuple):
        more = {"nargs": argparse.REMAINDER if parameter.name == "command" else "*"}
    command.add_argument(flag, default=default, help=f"default: {default}", **more)


if __name__ == "__main__":
    main()
