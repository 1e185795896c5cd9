"""jars.lock -> jar files on this machine: fetched one by one, checked against their SHA-256, remembered as checked.

No resolution happens here: the lock names every file. `python -m connector.runtime.jvm.jars` fetches the components
that icebridge itself runs on, `python -m connector.runtime.jvm.jars connect jdbc-sink` those named. Where
ICEBRIDGE_JARS names a folder of jars, they come from there and no registry is asked (`icebridge jars --to FOLDER` fills
one).
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from connector.errors import ConfigError, FatalError
from connector.runtime.jvm.cache import cache_dir, make_folder, name_draft
from connector.runtime.jvm.lockfile import LOCK_FILE, Artifact, parse_lockfile

if TYPE_CHECKING:
    from jgo.maven import MavenContext
    from rich.progress import TaskID

FOLDER = "ICEBRIDGE_JARS"
"""Environment variable that names a folder of jars: then no registry is asked."""
_M2 = "M2_REPO"
_THREADS = 8
_TRIES = 3
_PAUSE_S = 2.0
_ASIDE, _ABANDONED_S = ".fetch-", 3600
STORES = frozenset({"s3", "gcs", "adls", "postgresql", "mysql", "mariadb"})
"""Components that only some catalogs need."""
PEERS = frozenset({"flink", "iceberg-connect"})
"""Components of `make bench-peers`; migrations from `iceberg-connect`, on a worker of `connect`, are tested too."""
INTEROP = frozenset(
    {
        "connect",
        "jdbc-sink",
        "mariadb-source",
        "mysql-source",
        "postgres-source",
        "avro-converter",
        "registry",
        "nessie",
    }
)
ON_DEMAND = INTEROP | PEERS | STORES
"""Components of tests, benchmarks and some catalogs: fetched when named or asked for by `fetch_jars`."""

Stamp = dict[str, tuple[int, int]]
"""File path -> (size in bytes, modification time in ns) at the time its checksum was found right."""


def fetch_jars(component: str) -> tuple[Path, ...]:
    """Return the jars of a component (`spark`, `broker`, ...), in class path order, fetching what is missing.

    The first call reads every file once for its checksum; later calls only look at size and modification time
    (a few ms). FatalError: unknown component, registry out of reach, or a file that is not the locked one.
    """
    return fetch_artifacts(_locked_artifacts(component), _stamp_file(component), lambda _: None)


def fetch_artifacts(
    artifacts: Sequence[Artifact], stamp_file: Path, done: Callable[[Artifact], None]
) -> tuple[Path, ...]:
    """Have every artifact on this machine, checked; call `done` after each; keep what was checked in `stamp_file`."""
    stamp = _read_stamp(stamp_file)
    given = os.environ.get(FOLDER)
    home = Path(given).expanduser().absolute() if given else _repository()
    ensure = _check_given if given else _ensure_artifact
    files = {artifact: home / (artifact.file_name if given else artifact.relative) for artifact in artifacts}
    stale = [artifact for artifact, file in files.items() if not _is_stamped(stamp, artifact, file)]
    if stale:
        _tidy(home)
        with ThreadPoolExecutor(_THREADS) as pool:
            for artifact in pool.map(lambda artifact: ensure(artifact, home), stale):
                done(artifact)
        stamp = {_stamp_key(artifact, file): _file_state(file) for artifact, file in files.items()}
        _write_stamp(stamp_file, stamp)
    return tuple(files.values())


def copy_jars(components: Iterable[str], folder: Path, done: Callable[[Artifact], None]) -> int:
    """Fetch the components' jars and copy them into a folder, where ICEBRIDGE_JARS finds them; return their bytes.

    FatalError: as `fetch_jars`. OSError: no room.
    """
    folder.mkdir(parents=True, exist_ok=True)
    copied = {}
    for component in components:
        artifacts = _locked_artifacts(component)
        files = fetch_artifacts(artifacts, _stamp_file(component), done)
        for artifact, file in zip(artifacts, files, strict=True):
            target = folder / file.name
            if not target.is_file() or sha256_of(target) != artifact.sha256:
                draft = name_draft(target)
                try:
                    shutil.copyfile(file, draft)
                    draft.replace(target)
                finally:
                    draft.unlink(missing_ok=True)
            copied[target] = target.stat().st_size
    return sum(copied.values())


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _locked_artifacts(component: str) -> tuple[Artifact, ...]:
    components = parse_lockfile(LOCK_FILE.read_text(encoding="utf-8"))
    if component not in components:
        raise FatalError(f"no component {component!r} in {LOCK_FILE.name}; it has {', '.join(sorted(components))}")
    return components[component]


def _check_given(artifact: Artifact, folder: Path) -> Artifact:
    """Check the artifact's file in the user's folder; return the artifact."""
    file = folder / artifact.file_name
    if not file.is_file():
        raise FatalError(
            f"{artifact}: {artifact.file_name} is not in {folder}, the folder that {FOLDER} names; put it there (on a "
            f"machine with a registry `icebridge jars --to FOLDER` fetches all), or unset {FOLDER}"
        )
    if sha256_of(file) != artifact.sha256:
        raise FatalError(f"{file} is not the file of jars.lock: its SHA-256 is not {artifact.sha256}; replace it")
    return artifact


def _ensure_artifact(artifact: Artifact, home: Path) -> Artifact:
    """Put the artifact below `home` unless the right file is there; return it."""
    target = home / artifact.relative
    if target.is_file() and sha256_of(target) == artifact.sha256:
        return artifact
    with _map_unwritable(home), TemporaryDirectory(prefix=_ASIDE, dir=home) as aside:
        # Fetched aside and moved into place: another process, or a kill in the middle, never leaves half a jar.
        target.parent.mkdir(parents=True, exist_ok=True)
        fetched = _download(artifact, Path(aside))
        digest = sha256_of(fetched)
        if digest != artifact.sha256:
            raise FatalError(
                f"{artifact.file_name}: the registry's file has SHA-256 {digest}, jars.lock says {artifact.sha256}; "
                "do not use it: check the registry or mirror that jgo is set to"
            )
        fetched.replace(target)
    return artifact


@contextmanager
def _map_unwritable(home: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise FatalError(
            f"{home}: jars cannot be written there: {error}; set M2_REPO to a folder that this user can write, or "
            f"{FOLDER} to one with the jars"
        ) from error


def _tidy(home: Path) -> None:
    """Remove what processes that ended while they fetched have left."""
    for aside in home.glob(f"{_ASIDE}*"):
        with suppress(OSError):
            if time.time() - aside.stat().st_mtime > _ABANDONED_S:
                shutil.rmtree(aside, ignore_errors=True)


def _download(artifact: Artifact, folder: Path) -> Path:
    context = _maven_context(folder)
    component = context.project(artifact.group, artifact.name).at_version(artifact.version)
    wanted = component.artifact(classifier=artifact.classifier, packaging=artifact.packaging)
    for attempt in range(1, _TRIES + 1):
        try:
            return wanted.resolve()
        except (OSError, RuntimeError) as error:  # requests' errors are OSErrors; jgo raises RuntimeError for a refusal
            (folder / artifact.relative).unlink(missing_ok=True)
            if attempt == _TRIES:
                raise FatalError(
                    f"{artifact}: cannot be downloaded from the registry after {_TRIES} tries ({type(error).__name__}: "
                    f"{error}); check the network, or name a mirror in jgo's settings ([repositories] central = ...)"
                ) from error
            time.sleep(_PAUSE_S * attempt)
    raise AssertionError


def _maven_context(folder: Path) -> MavenContext:
    from jgo.config import GlobalSettings
    from jgo.maven import MavenContext

    repositories = {**MavenContext().remote_repos, **GlobalSettings.load().repositories}
    return MavenContext(repo_cache=folder, remote_repos=repositories)


def _repository() -> Path:
    """The local Maven repository that jgo and Maven share: `M2_REPO`, else `~/.m2/repository`."""
    return make_folder(os.environ.get(_M2), lambda: Path.home() / ".m2" / "repository", _M2)


def _stamp_file(component: str) -> Path:
    return cache_dir() / "jars" / f"{component}.json"


def _stamp_key(artifact: Artifact, path: Path) -> str:
    return f"{artifact.sha256} {path}"


def _file_state(path: Path) -> tuple[int, int]:
    stat = path.stat()
    return stat.st_size, stat.st_mtime_ns


def _is_stamped(stamp: Stamp, artifact: Artifact, path: Path) -> bool:
    return path.is_file() and stamp.get(_stamp_key(artifact, path)) == _file_state(path)


def _read_stamp(file: Path) -> Stamp:
    try:
        return {key: (size, time_ns) for key, (size, time_ns) in json.loads(file.read_text(encoding="utf-8")).items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def _write_stamp(file: Path, stamp: Stamp) -> None:
    # Where the cache cannot be written the next start reads the files once more.
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        draft = name_draft(file)
        draft.write_text(json.dumps(stamp), encoding="utf-8")
        draft.replace(file)


def choose_components(names: Iterable[str], known: Iterable[str]) -> tuple[str, ...]:
    """Return the components to fetch: those named, else all but ON_DEMAND. ConfigError for a name that is not known."""
    names, known = tuple(names), tuple(known)
    unknown = sorted(set(names) - set(known))
    if unknown:
        raise ConfigError(f"no component {', '.join(unknown)} in {LOCK_FILE.name}; it has {', '.join(sorted(known))}")
    return names or tuple(name for name in known if name not in ON_DEMAND)


def show_progress(components: Iterable[str], folder: Path | None = None) -> int:
    """Fetch components, into `folder` if one is given, showing how far it is on standard error; return their bytes.

    FatalError: as `fetch_jars`. ConfigError: a name is no component's.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    locked = parse_lockfile(LOCK_FILE.read_text(encoding="utf-8"))
    chosen = choose_components(components, locked)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    size = 0
    with Progress(*columns, console=Console(stderr=True)) as progress:
        for component in chosen:
            artifacts = locked[component]
            task = progress.add_task(f"jars for {component}", total=len(artifacts))

            def advance(_: Artifact, task: TaskID = task) -> None:
                progress.advance(task)

            if folder is not None:
                size += copy_jars([component], folder, advance)
            else:
                files = fetch_artifacts(artifacts, _stamp_file(component), advance)
                size += sum(file.stat().st_size for file in files)
            progress.update(task, completed=len(artifacts))
    return size


def main() -> None:
    """Fetch the components named on the command line, else those for everyone, showing how far it is."""
    size = show_progress(sys.argv[1:])
    sys.stderr.write(f"{size // 1_000_000} MB of jars are here\n")


if __name__ == "__main__":
    main()
