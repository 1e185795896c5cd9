"""a page of docs/ -> its commands, done word for word by a shell in a folder, as a user does who has its files."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from attrs import frozen

from tests.harness.markdown import iter_blocks
from tests.harness.paths import PROJECT
from tests.runs.processes import PATIENCE

_COMMAND_S, _STOP_S, _STEP_S = 240.0, 120.0, 0.5


@frozen
class PageReader:
    """A user in a folder of their own, and what is called otherwise here than on the page, such as addresses."""

    page: str
    """Its path below docs/."""
    home: Path
    names: Mapping[str, str]

    def follow(self, part: str) -> str:
        """Run the page's command that has this part; return what it printed. AssertionError where it fails."""
        line = self._command(part)
        done = subprocess.run(
            ["sh", "-ec", line],
            cwd=self.home,
            env=_environ(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_COMMAND_S,
            check=False,
        )
        fine = done.returncode == 0 and '"error_code"' not in done.stdout  # as Kafka Connect says it; curl is content
        assert fine, f"{line}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    @contextmanager
    def running(self, part: str) -> Iterator[Callable[[Callable[[], bool]], None]]:
        """Have the page's command run, with a function that waits for something; it must end with 0 when it is told to.

        AssertionError with the end of what it said where it ends before, ends otherwise, or time is over.
        """
        log = self.home / "run.log"
        with log.open("wb") as said:
            line = f"exec {self._command(part)}"
            process = subprocess.Popen(
                ["sh", "-ec", line], cwd=self.home, env=_environ(), stdin=subprocess.DEVNULL, stdout=said, stderr=said
            )
        try:
            yield lambda seen: self._wait(process, seen, log)
            process.terminate()
            assert process.wait(_STOP_S) == 0, log.read_text()[-4000:]
        finally:
            process.kill()
            process.wait(_STOP_S)

    def _wait(self, process: subprocess.Popen[bytes], seen: Callable[[], bool], log: Path) -> None:
        end = time.monotonic() + PATIENCE * 60
        while not seen():
            assert process.poll() is None, f"it ended with {process.returncode}:\n{log.read_text()[-4000:]}"
            assert time.monotonic() < end, f"never seen:\n{log.read_text()[-4000:]}"
            time.sleep(_STEP_S)

    def _command(self, part: str) -> str:
        """The only command of the page with this part, in the names of this place."""
        found = [line for line in self._commands() if part in line]
        assert len(found) == 1, f"{self.page} has {len(found)} commands with {part!r}"
        return found[0]

    def _commands(self) -> Iterator[str]:
        text = (PROJECT / "docs" / self.page).read_text("utf-8")
        for block in (block for kind, block in iter_blocks(text) if kind == "sh"):
            for line in re.sub(r"\\\n\s*", "", block).splitlines():
                command = re.sub(r"\s+# .*$", "", line).strip()
                for name, here in self.names.items():
                    command = command.replace(name, here)
                yield command


def _environ() -> dict[str, str]:
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
