"""One-line descriptions of a job's progress and of what it waits for."""

from mathrag.cli.output import describe_wait
from mathrag.client.jobs import Job


def summarise(job: Job) -> str:
    """Return a line such as "first  running  retrieve 20/40  judge 3/10  samples 0/100"."""
    counts = job["request_counts"]
    stages = [f"{role} {stage['done']}/{stage['total']}" for role, stage in job.get("stages", {}).items()]
    samples = f"samples {counts['total'] - counts['in_progress']}/{counts['total']}"
    return "  ".join([job["name"], job["state"], *stages, samples, *describe_waits(job)])


def describe_waits(job: Job) -> list[str]:
    """Return a line for each unavailable service, and one for models that no guard serves."""
    away = [f"waiting {describe_wait(each)}" for each in job.get("waiting", ())]
    return [*away, *filter(None, [describe_unserved(job)])]


def describe_unserved(job: Job) -> str:
    """Return which of the job's models no guard serves, with a remedy; "" if all are served."""
    names = ", ".join(job.get("unserved", ()))
    problem = f"no guard serves {names} as pinned when the job was submitted"
    return f"{problem}: restore the model and restart the guard, or cancel and submit again" if names else ""
