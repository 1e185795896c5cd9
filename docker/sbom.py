"""Installed packages + jars.lock -> a bill of materials (CycloneDX 1.5, JSON) on standard output."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

from connector.runtime.jvm.lockfile import LOCK_FILE, Artifact, parse_lockfile


def render_bill(packages: Iterable[Distribution], artifacts: Iterable[Artifact]) -> dict[str, Any]:
    """Return the document: a component for each Python package and each jar, with its package URL."""
    found = {(one.metadata["Name"], one.version): _package(one) for one in packages}
    jars = {artifact.relative: _jar(artifact) for artifact in artifacts}
    parts = [found[key] for key in sorted(found)] + [jars[key] for key in sorted(jars)]
    return {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "components": parts}


def _package(one: Distribution) -> dict[str, Any]:
    name = one.metadata["Name"]
    purl = f"pkg:pypi/{name.lower().replace('_', '-')}@{one.version}"
    return {"type": "library", "name": name, "version": one.version, "purl": purl, "bom-ref": purl}


def _jar(artifact: Artifact) -> dict[str, Any]:
    purl = f"pkg:maven/{artifact.group}/{artifact.name}@{artifact.version}"
    return {
        "type": "library",
        "group": artifact.group,
        "name": artifact.name,
        "version": artifact.version,
        "purl": purl,
        "bom-ref": purl,
        "hashes": [{"alg": "SHA-256", "content": artifact.sha256}],
    }


def main(folder: Path) -> None:
    """Print the bill of this environment and of the jars in a folder."""
    locked = {
        one.file_name: one for artifacts in parse_lockfile(LOCK_FILE.read_text("utf-8")).values() for one in artifacts
    }
    jars = [locked[path.name] for path in sorted(folder.iterdir()) if path.name in locked]
    json.dump(render_bill(distributions(), jars), sys.stdout, indent=1)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
