"""Free memory of a GPU, by NVML, which sees what every process holds; a model server's own word is not enough."""

from contextlib import suppress


def free_mib(device: str) -> float | None:
    """MiB free on the GPU with this UUID; None where it cannot be measured: another name, no NVML, no driver."""
    if not device.startswith("GPU-"):
        return None
    with suppress(ImportError):
        import pynvml

        with suppress(pynvml.NVMLError):
            pynvml.nvmlInit()
            try:
                return float(pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByUUID(device)).free / 2**20)
            finally:
                pynvml.nvmlShutdown()
    return None
