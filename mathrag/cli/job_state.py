"""How far a job is, and what it waits for, in words."""

from mathrag.cli.output import waits
from mathrag.client.jobs import Job


def summary(job: Job) -> str:
    """Such as "first  running  retrieve 20/40  judge 3/10  samples 0/100"."""
    counts = job["request_counts"]
    stages = [f"{role} {stage['done']}/{stage['total']}" for role, stage in job.get("stages", {}).items()]
    samples = f"samples {counts['total'] - counts['in_progress']}/{counts['total']}"
    return "  ".join([job["name"], job["state"], *stages, samples, *waiting(job)])


def waiting(job: Job) -> list[str]:
    """What the job waits for: what is away, and models that nobody serves."""
    away = [f"waiting {waits(each)}" for each in job.get("waiting", ())]
    return [*away, *filter(None, [unserved(job)])]


def unserved(job: Job) -> str:
    """Which models the job waits for that nobody serves, and what to do; empty where it waits for none."""
    names = ", ".join(job.get("unserved", ()))
    said = f"no guard serves {names} as it was when the job was submitted"
    return f"{said}: put it back and restart the guard, or cancel and submit again" if names else ""
