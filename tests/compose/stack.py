"""docker/compose.yaml -> commands that reach it: by docker, or by Compose's own binary, which talks to podman.

Podman without systemd keeps no timer for health checks, so they are asked for here.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs

from tests.compose.env import DOCKER, choose_ports, read_env

ROOT = DOCKER.parent
COMPOSE = "docker compose --file docker/compose.yaml"
_CONF = """\
[containers]
default_ulimits=["nofile=20000:20000","nproc=4096:4096"]
seccomp_profile="unconfined"
[engine]
runtime="runc"
[network]
network_backend="netavark"
"""


class CommandError(Exception):
    """A command of the shell failed."""


@attrs.frozen
class Stack:
    """The stack of compose.yaml, as a shell with this environment sees it."""

    environ: dict[str, str]
    stand_ins: bool
    """Whether podman has stand-ins for the images of others."""

    @property
    def env(self) -> dict[str, str]:
        """What .env gives, and the shell's variables before that."""
        return {**read_env(), **self.environ}

    def run(self, command: str, timeout_s: float = 600) -> str:
        """Run one line of the shell in the project's root; return what it printed. CommandError with its error."""
        done = subprocess.run(
            ["sh", "-c", command],
            cwd=ROOT,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        if done.returncode:
            raise CommandError(f"{command}: exit {done.returncode}: {(done.stdout + done.stderr)[-4000:]}")
        return done.stdout

    def compose(self, *arguments: str, timeout_s: float = 600) -> str:
        """Run one command of compose."""
        return self.run(f"{COMPOSE} {shlex.join(arguments)}", timeout_s)


def write_podman_conf(folder: Path) -> Path:
    """Write what podman needs to run containers on machines like this one; docker does not read it."""
    file = folder / "containers.conf"
    file.write_text(_CONF)
    return file


@contextmanager
def by_docker() -> Iterator[Stack]:
    """Yield the stack as docker runs it."""
    yield Stack({**choose_ports(), **os.environ}, stand_ins=False)


@contextmanager
def by_podman(binary: str) -> Iterator[Stack]:
    """Yield the stack as podman runs it, asked by Compose's binary, which answers to `docker compose`."""
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch)
        docker = home / "docker"
        docker.write_text(f'#!/bin/sh\nshift\nexec {shlex.quote(binary)} "$@"\n')
        docker.chmod(0o755)
        address = f"unix://{scratch}/podman.sock"
        environ = {
            "CONTAINERS_CONF": str(write_podman_conf(home)),
            **choose_ports(),
            **os.environ,
            "DOCKER_HOST": address,
            "PATH": f"{scratch}{os.pathsep}{os.environ['PATH']}",
        }
        command = ["podman", "system", "service", "--time=0", address]
        service = subprocess.Popen(command, env=environ, stderr=subprocess.DEVNULL)
        ended = threading.Event()
        checks = threading.Thread(target=_check_health, args=(environ, ended), daemon=True)
        checks.start()
        try:
            yield Stack(environ, stand_ins=True)
        finally:
            ended.set()
            checks.join()
            service.terminate()
            service.wait()


def _check_health(environ: dict[str, str], ended: threading.Event) -> None:
    """Every 5 s, as most of compose.yaml asks, run the health check of each container that is not healthy yet."""
    label = "label=com.docker.compose.project=icebridge"
    asked = ["podman", "ps", "--filter", label, "--filter", "health=starting", "--format", "{{.Names}}"]
    while not ended.wait(5):
        names = subprocess.run(asked, env=environ, capture_output=True, text=True, check=False).stdout.split()
        for name in names:
            subprocess.run(["podman", "healthcheck", "run", name], env=environ, capture_output=True, check=False)
