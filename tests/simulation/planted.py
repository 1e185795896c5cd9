"""`python -m tests.simulation.planted`: how many histories it takes to find each fault that is put in on purpose.

Faults that are planted, one after the other -> a tally of the first history that is wrong with each, and what is wrong
there; and a page of the tally.

NAME ...        only these (default: all)
--left          only those of them that the tally does not say are found
--within N      so many histories at most (default: 10000)
--tally FILE    add a line for each fault as soon as it is found (default: docs/planted-faults.jsonl)
--write FILE    write the page: the last line of each fault

Exit code 1: a fault was not found, or the program with it cannot run at all.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from attrs import frozen

from tests.harness.paths import PROJECT
from tests.harness.tally import add_line, end_on_signals
from tests.simulation.answers import forget_all
from tests.simulation.capture_mutations import CAPTURE_MUTATIONS
from tests.simulation.move_mutations import MOVE_MUTATIONS
from tests.simulation.mutations import MUTATIONS, Mutation
from tests.simulation.process import quiet
from tests.simulation.rare_mutations import RARE_MUTATIONS
from tests.simulation.rule_mutations import RULE_MUTATIONS
from tests.simulation.runs import Tell, tell_sink, tell_source
from tests.simulation.shrinking import Failure, tell
from tests.simulation.steps import Maintain
from tests.simulation.stories import make_story, spread
from tests.simulation.world_mutations import WORLD_MUTATIONS

WITHIN = 10_000
_TALLY = PROJECT / "docs" / "planted-faults.jsonl"
_HEAD = """# Planted faults

Faults that are put into the code on purpose, and how many histories of the [simulated world](guarantees.md) it took to
find each. For the conditions of maintenance, histories without maintenance are counted, too, but not gone through.
The last chapter has those that ten thousand histories do not meet: each has one story of its own, which a longer search
found when the program had the fault.
`python -m tests.simulation.planted --left --write docs/planted-faults.md` goes through what is left, and writes this
page from `docs/planted-faults.jsonl`, which says when each was found, and in which commit.
"""
_CHAPTERS = (
    ("The sink, its tables and indexes", MUTATIONS),
    ("What others bring about, and what became of it", WORLD_MUTATIONS),
    ("Rows whose keys change, and values that are not sent", MOVE_MUTATIONS),
    ("The conditions under which maintenance commits", {name: made for name, (made, *_) in RULE_MUTATIONS.items()}),
    ("The source", CAPTURE_MUTATIONS),
    ("Too rare for a search", {name: made for name, (made, *_) in RARE_MUTATIONS.items()}),
)
_EVERY = {name: mutation for _, mutations in _CHAPTERS for name, mutation in mutations.items()}


@frozen
class Finding:
    """A planted fault: after how many histories it was found, and what was wrong; not `is_found`: none tells of it."""

    fault: str
    histories: int
    is_found: bool
    wrong: str = ""

    def row(self) -> str:
        """Its row of the page."""
        says = " ".join((_EVERY[self.fault].__doc__ or self.fault).split())
        wrong = self.wrong.replace("|", "/")
        return f"| {says} | {self.histories if self.is_found else 'not found'} | {_shorten(wrong)} |"

    def add_to(self, file: Path) -> None:
        """Append it to a tally."""
        add_line(file, {"fault": self.fault, "histories": self.histories, "found": self.is_found, "wrong": self.wrong})


def read_tally(file: Path) -> dict[str, Finding]:
    """Return the last line of each fault that there is."""
    lines = map(json.loads, file.read_text(encoding="utf-8").splitlines()) if file.exists() else ()
    findings = (Finding(one["fault"], one["histories"], one["found"], one["wrong"]) for one in lines)
    return {one.fault: one for one in findings if one.fault in _EVERY}


def is_broken(failure: Failure) -> bool:
    """Tell whether the program with the fault cannot run, so that nothing is proven."""
    return "fell over: " in failure.reason


def find(name: str, mutation: Mutation, folder: str, within: int = WITHIN) -> Finding:
    """Go through histories until one is wrong."""
    tell_seed, seeds = _find_histories(name, within)
    count, failure = 0, None
    forget_all()
    with mutation():
        for seed in seeds:
            count += 1
            failure = tell_seed(seed, folder)
            if failure is not None:
                break
    forget_all()
    if failure is not None and (known := tell_seed(seed, folder)) is not None:
        raise AssertionError(f"seed {seed} is wrong without any planted fault: {known}")
    if failure is None:
        return Finding(name, count, is_found=False)
    return Finding(name, count, not is_broken(failure), failure.reason.splitlines()[0])


def _find_histories(name: str, within: int) -> tuple[Tell, Iterable[int]]:
    """Return what is gone through."""
    if name in RARE_MUTATIONS:
        _, story, _ = RARE_MUTATIONS[name]
        return lambda _, folder: tell(story, folder), (0,)
    if name in CAPTURE_MUTATIONS:
        return tell_source, range(within)
    return tell_maintained if name in RULE_MUTATIONS else tell_sink, spread(range(within))


def tell_maintained(seed: int, folder: str) -> Failure | None:
    """Go through a story with maintenance: a rule of maintenance changes no other."""
    story = make_story(seed)
    return tell(story, folder) if any(isinstance(step, Maintain) for step in story.steps) else None


def page(findings: Mapping[str, Finding]) -> str:
    """The page about all of them."""
    parts = [_HEAD]
    for title, mutations in _CHAPTERS:
        rows = [findings[name].row() for name in mutations if name in findings]
        head = (f"## {title}", "", "| Fault | Histories | What was wrong |", "|---|---|---|")
        left = ", ".join(f"`{name}`" for name in mutations if name not in findings)
        parts.append("\n".join((*head, *rows, *(("", f"Not gone through: {left}.") if left else ()), "")))
    return "\n".join(parts)


def _shorten(text: str, most: int = 110) -> str:
    return text if len(text) <= most else text[:most].rsplit(" ", 1)[0] + " ..."


def main(arguments: list[str] | None = None) -> int:
    """Exit code 1 where a fault was not found."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation.planted",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--left", action="store_true")
    parser.add_argument("--within", type=int, default=WITHIN)
    parser.add_argument("--tally", type=Path, default=_TALLY)
    parser.add_argument("--write", type=Path)
    told = parser.parse_args(arguments)
    if unknown := set(told.names) - _EVERY.keys():
        parser.error(f"no fault has the name {', '.join(sorted(unknown))}")
    known = read_tally(told.tally)
    wanted = [name for name in told.names or _EVERY if not told.left or name not in known or not known[name].is_found]
    end_on_signals()
    with quiet(), tempfile.TemporaryDirectory() as folder, suppress(KeyboardInterrupt):
        for name in wanted:
            found = find(name, _EVERY[name], folder, told.within)
            found.add_to(told.tally)
            sys.stdout.write(f"{name}: {found.row()}\n")
            sys.stdout.flush()
    findings = read_tally(told.tally)  # Others may have gone through their part beside this one.
    if told.write is not None:
        told.write.write_text(page(findings), encoding="utf-8")
    return int(not all(findings[name].is_found for name in told.names or _EVERY if name in findings))


if __name__ == "__main__":
    sys.exit(main())
