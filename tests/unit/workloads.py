"""Pictures of work and devices, as `decide` is shown them."""

from shared.calls import Lane
from shared.lease.policy import DeviceResidency, ModelLoad, WorkloadSnapshot

JUDGE, GENERATOR = 1, 2


def load(
    model_id: int, calls: int = 1, lane: Lane | None = None, footprint_mib: int = 96, **seconds: float
) -> ModelLoad:
    """Work of a model; 1 is a judge, every other one a generator unless said."""
    lane = lane or (Lane.JUDGE if model_id == JUDGE else Lane.GENERATE)
    return ModelLoad(model_id=model_id, footprint_mib=footprint_mib, lane=lane, calls=calls, **seconds)


def picture(*loads: ModelLoad, ready: bool = False, cpu_calls: int = 0, cpu_idle_s: float = 0.0) -> WorkloadSnapshot:
    """The work."""
    return WorkloadSnapshot(loads=loads, ready=ready, cpu_calls=cpu_calls, cpu_idle_s=cpu_idle_s)


def held(
    *models: int, state: str = "open", reason: str | None = None, failures: int = 0, **seconds: float
) -> DeviceResidency:
    """What the device holds."""
    return DeviceResidency(epoch=5, models=models, state=state, reason=reason, failures=failures, **seconds)
