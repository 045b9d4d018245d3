"""The GPU's driver: what a model takes is learned anew with another one."""

from shared.settings import Device


def version(device: Device) -> str:
    """As NVML says; empty for a device that it does not measure, or where it does not answer."""
    if not device.measured:
        return ""
    try:
        import pynvml

        pynvml.nvmlInit()
        try:
            return str(pynvml.nvmlSystemGetDriverVersion())
        finally:
            pynvml.nvmlShutdown()
    except Exception:  # noqa: BLE001 - the library or its driver may be missing, and a version is not worth a flip
        return ""
