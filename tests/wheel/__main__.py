"""This tree -> wheel and sdist -> a fresh environment of each Python -> what a new user does first, and what it says.

Pythons that are not on this machine are told of and left out; ICEBRIDGE_PYTHONS names others than 3.11 to 3.13.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
VERSIONS = ("3.11", "3.12", "3.13")
EQUAL = "replica and source are equal"
_IMPORT_ALL = """\
import importlib, pkgutil, connector, serde
assert "site-packages" in connector.__file__, connector.__file__
names = [one.name for package in (connector, serde) for one in
         pkgutil.walk_packages(package.__path__, package.__name__ + ".") if not one.name.endswith("__main__")]
for name in names: importlib.import_module(name)
print(len(names), "modules are there")
"""


def main() -> None:
    """Build and try; exit code 1 where one Python fails or none is found."""
    versions = os.environ.get("ICEBRIDGE_PYTHONS", " ".join(VERSIONS)).split()
    with tempfile.TemporaryDirectory(prefix="icebridge-wheel-") as scratch:
        wheel, sdist = build(Path(scratch) / "dist")
        check_contents(wheel, sdist)
        found = {version: python for version in versions if (python := find_python(version)) is not None}
        for version in versions:
            if version not in found:
                say(f"Python {version} is not on this machine")
        for version, python in found.items():
            try_python(version, python, wheel, Path(scratch) / version)
    sys.exit(0 if found else 1)


def build(folder: Path) -> tuple[Path, Path]:
    """Build wheel and sdist into a folder; return them."""
    run([_uv(), "build", "--quiet", "--out-dir", str(folder), str(ROOT)], ROOT)
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist


def check_contents(wheel: Path, sdist: Path) -> None:
    """See that both have the licence, the typed packages and the lock of the jars, and the wheel no tests."""
    names = zipfile.ZipFile(wheel).namelist()
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert {name.split("/")[0].split("-")[0] for name in names} == {"connector", "serde", "icebridge"}
    assert "connector/runtime/jvm/jars.lock" in names
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "README.md", "pyproject.toml", "connector/runtime/jvm/jars.lock"} <= inside


def try_python(version: str, python: str, wheel: Path, folder: Path) -> None:
    """Install the wheel by pip into a fresh environment; import everything, then run the demo in an empty folder."""
    began = time.monotonic()
    run([python, "-m", "venv", str(folder / "venv")], ROOT)
    home = folder / "work"
    home.mkdir()
    bin_ = folder / "venv" / "bin"
    run([str(bin_ / "python"), "-m", "pip", "install", "--quiet", str(wheel)], home)
    say(f"Python {version}: installed in {time.monotonic() - began:.0f} s")
    say(run([str(bin_ / "python"), "-c", _IMPORT_ALL], home).strip())
    assert wheel.name.split("-")[1] in run([str(bin_ / "icebridge"), "--version"], home)
    began = time.monotonic()
    told = run([str(bin_ / "icebridge"), "demo"], home)
    assert EQUAL in told, told[-3000:]
    say(f"Python {version}: demo in {time.monotonic() - began:.0f} s, {told.count(EQUAL)} times {EQUAL!r}")
    shutil.rmtree(folder)


def find_python(version: str) -> str | None:
    """Return the interpreter of a version on this machine: on the path, or one of pyenv's."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = [f"python{version}", *map(str, sorted(pyenv.glob(f"{version}.*/bin/python")))]
    for candidate in candidates:
        python = shutil.which(candidate)
        # A shim of pyenv is there for each version that some project may choose.
        if python and subprocess.run([python, "--version"], capture_output=True, check=False).returncode == 0:
            return python
    return None


def run(command: Sequence[str], folder: Path) -> str:
    """Run a command in a folder, without this tree on its path; return what it printed."""
    environ = {key: text for key, text in os.environ.items() if key not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{(done.stdout + done.stderr)[-4000:]}")
    return done.stdout


def say(text: str) -> None:
    """Tell at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _uv() -> str:
    return str(Path(sys.executable).with_name("uv"))


if __name__ == "__main__":
    main()
