"""Whether containers can be had on this machine, and if not, why: asked before anything waits for them."""

import shutil
import subprocess

PATIENCE_S = 5
"""An engine that does not even list images by then is none that tests should wait for."""


def lacking(*images: str, compose: bool = False) -> str:
    """What is missing for containers of these images; empty where nothing is. Nothing is fetched."""
    commands = [["version", "--format", "{{.Server.Version}}"]]
    if compose:
        commands.append(["compose", "version"])
    if images:
        commands.append(["image", "inspect", "--format", "{{.Id}}", *images])
    return next(filter(None, map(_refusal, commands)), "")


def _refusal(arguments: list[str]) -> str:
    docker = shutil.which("docker")
    if docker is None:
        return "there is no command `docker`"
    try:
        done = subprocess.run([docker, *arguments], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    except subprocess.TimeoutExpired:
        return f"`docker {arguments[0]}` did not answer within {PATIENCE_S} s"
    said = done.stderr.strip().splitlines()
    return "" if done.returncode == 0 else said[0] if said else f"`docker {arguments[0]}` failed"
