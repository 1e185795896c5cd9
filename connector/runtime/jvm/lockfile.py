"""jars.lock -> the exact artifacts of each component, and back to text."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from attrs import frozen

LOCK_FILE = Path(__file__).with_name("jars.lock")

_HEAD = """\
# The exact jars of every component, with their SHA-256. Written by `python -m connector.runtime.jvm.lock`.
# artifact = "group:artifact:version"; classifier and packaging are named when they are not the plain jar.
"""


@frozen
class Artifact:
    """One file of a Maven component and its SHA-256 (hexadecimal)."""

    group: str
    name: str
    version: str
    sha256: str
    classifier: str = ""
    packaging: str = "jar"

    @property
    def file_name(self) -> str:
        """Name of the file, as Maven repositories have it."""
        suffix = f"-{self.classifier}" if self.classifier else ""
        return f"{self.name}-{self.version}{suffix}.{self.packaging}"

    @property
    def relative(self) -> Path:
        """Path below a Maven repository's root."""
        return Path(*self.group.split("."), self.name, self.version, self.file_name)

    def __str__(self) -> str:
        """Return `group:artifact:version`."""
        return f"{self.group}:{self.name}:{self.version}"


def parse_lockfile(text: str) -> dict[str, tuple[Artifact, ...]]:
    """Read a lock file's text: component -> artifacts in class path order. ValueError, KeyError when malformed."""
    return {
        component: tuple(_parse_artifact(entry) for entry in entries)
        for component, entries in tomllib.loads(text).items()
    }


def _parse_artifact(entry: Mapping[str, str]) -> Artifact:
    group, name, version = entry["artifact"].split(":")
    classifier, packaging = entry.get("classifier", ""), entry.get("packaging", "jar")
    return Artifact(group, name, version, entry["sha256"], classifier, packaging)


def render_lockfile(components: Mapping[str, Sequence[Artifact]]) -> str:
    """Write the text of a lock file; `parse_lockfile` reads the same value back."""
    blocks = [f"{name} = [\n{''.join(map(_render_artifact, artifacts))}]\n" for name, artifacts in components.items()]
    return "\n".join([_HEAD, *blocks])


def _render_artifact(artifact: Artifact) -> str:
    fields = {"artifact": str(artifact)}
    if artifact.classifier:
        fields["classifier"] = artifact.classifier
    if artifact.packaging != "jar":
        fields["packaging"] = artifact.packaging
    fields["sha256"] = artifact.sha256
    inside = ", ".join(f'{key} = "{value}"' for key, value in fields.items())
    return f"  {{ {inside} }},\n"
