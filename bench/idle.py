"""Measure the memory of an idle stack by process, as proportional set sizes, so that shared pages count once.

.venv/bin/python -m bench.idle
"""

import time

import psutil

from bench.running import stack

LIMIT_MIB = 1024
SETTLE_S = 20


def main() -> None:
    """Print a figure for each process with its children, and the sum against the limit."""
    with stack() as running:
        time.sleep(SETTLE_S)
        found = running.status()
        sizes = {child["name"]: tree_mib(child["pid"]) for child in found["children"]}
        sizes["supervisor"] = mib(psutil.Process(found["pid"]))
    for name, size in sizes.items():
        print(f"{name}: {size:.0f} MiB")
    total = sum(sizes.values())
    print(f"sum {total:.0f} MiB, {total / LIMIT_MIB:.2f} of the limit of {LIMIT_MIB}")


def tree_mib(pid: int) -> float:
    """Sum a process and all its descendants, in MiB."""
    process = psutil.Process(pid)
    return sum(mib(each) for each in (process, *process.children(recursive=True)))


def mib(process: psutil.Process) -> float:
    """Return the proportional set size in MiB."""
    return float(process.memory_full_info().pss / 2**20)


if __name__ == "__main__":
    main()
