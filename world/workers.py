"""Processes that share a step's samples: one thread each loses less than threads that wait for one another."""

from collections.abc import Callable
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import distributed
from torch.multiprocessing import spawn


@dataclass(frozen=True)
class Worker:
    """One of `count` processes; process 0 prints and saves."""

    rank: int
    count: int

    def add_gradients(self, model: Any) -> None:
        """Give every process the sum of all gradients."""
        if self.count == 1:
            return
        gradients = [each.grad for each in model.parameters() if each.grad is not None]
        flat = torch.cat([each.flatten() for each in gradients])
        distributed.all_reduce(flat)
        for each, part in zip(gradients, flat.split([each.numel() for each in gradients]), strict=True):
            each.copy_(part.view_as(each))

    def agree(self, *, stop: bool) -> bool:
        """Return whether any process wants to stop; all processes have to call it."""
        if self.count == 1:
            return stop
        votes = torch.tensor(int(stop))
        distributed.all_reduce(votes)
        return bool(votes)


def run_workers(count: int, run: Callable[..., None], *arguments: Any) -> None:
    """Call `run(worker, *arguments)` in `count` processes, one of which is this process."""
    if count == 1:
        run(Worker(0, 1), *arguments)
        return
    with TemporaryDirectory() as folder:
        spawn(_join, (count, f"file://{folder}/meeting", run, arguments), nprocs=count)


def _join(rank: int, count: int, meeting: str, run: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    distributed.init_process_group("gloo", init_method=meeting, rank=rank, world_size=count)
    run(Worker(rank, count), *arguments)
    distributed.destroy_process_group()
