"""The compose project as a user starts it, under a name and on a port of its own."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tests.running import DEADLINE_S, REPOSITORY, Document, Service
from tests.servers import POSTGRES, REDIS

DOCKER = shutil.which("docker") or "docker"
PROFILES = ("gpu", "search", "observability", "debug")
DEFAULTS = {
    "MATHRAG_PORT": "0",
    "MATHRAG_TAG": "test",
    "COMPOSE_PROGRESS": "quiet",
    # Compose pins a minor version; a test takes what the engine has of the same major one.
    "POSTGRES_IMAGE": POSTGRES,
    "REDIS_IMAGE": REDIS,
}


def compose(project: str, *arguments: str, **environment: str) -> str:
    """What a `docker compose` command prints; it must succeed."""
    done = subprocess.run(
        [DOCKER, "compose", "--project-name", project, *arguments],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        check=False,
        timeout=900,
        env={**os.environ, **DEFAULTS, **environment},
    )
    assert done.returncode == 0, f"docker compose {' '.join(arguments)}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def configured(*profiles: str, **environment: str) -> Document:
    """The project as compose understands it with these profiles."""
    chosen = [word for profile in profiles for word in ("--profile", profile)]
    found: Document = json.loads(compose("configured", *chosen, "config", "--format", "json", **environment))
    return found


class Composed(Service):
    """A project that runs."""

    def __init__(self, project: str) -> None:
        self.project = project
        super().__init__(f"http://{compose(project, 'port', 'orchestrator', '8080').strip()}")

    def run(self, *arguments: str) -> str:
        """A compose command on it."""
        return compose(self.project, *arguments)

    def inside(self, service: str, script: str) -> str:
        """What a shell script prints in a service's first container."""
        return self.run("exec", "--no-TTY", service, "sh", "-c", script)

    def containers(self) -> list[Document]:
        """All of them, also those that have ended, as `docker compose ps` shows them."""
        return [json.loads(line) for line in self.run("ps", "--all", "--format", "json").splitlines()]

    def inspect(self) -> list[Document]:
        """All of them, as the engine knows them."""
        ids = [container["ID"] for container in self.containers()]
        done = subprocess.run([DOCKER, "inspect", *ids], capture_output=True, check=True, timeout=DEADLINE_S)
        found: list[Document] = json.loads(done.stdout)
        return found

    def restarts(self) -> Mapping[str, int]:
        """How often the engine has started each again by itself, by service and number."""
        prefix = f"/{self.project}-"
        return {each["Name"].removeprefix(prefix): each["RestartCount"] for each in self.inspect()}

    def kill(self, service: str) -> None:
        """SIGKILL what runs in a service's first container; the engine must find out by itself."""
        # Process 1 is the engine's init, which nothing inside can kill. The shell may not live to see its end.
        self.inside(service, "kill -KILL $(cat /proc/1/task/1/children) || true")


@contextmanager
def composed(project: str) -> Iterator[Composed]:
    """The project, built and healthy; gone at the end with all that it kept."""
    try:
        compose(project, "up", "--build", "--wait")
        running = Composed(project)
        yield running
        running.api.close()
    finally:
        compose(project, "--profile", "*", "down", "--volumes", "--timeout", "5")
