"""Histories of the simulated world: some of each run, and those in which faults of the product were found."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from serde.formats import FORMATS
from serde.wire_format import ReadOptions
from tests.harness.rounds import SEED
from tests.model.events import CLOCKS
from tests.simulation.found import FOUND
from tests.simulation.known_results import read_plain
from tests.simulation.process import quiet
from tests.simulation.shrinking import shrink, tell
from tests.simulation.source import Source
from tests.simulation.steps import Story
from tests.simulation.stories import SCRIPT, make_story

pytestmark = [pytest.mark.unit, pytest.mark.timeout(300)]

ROUNDS, EACH = 4, 12


@pytest.fixture(autouse=True)
def silence() -> Iterator[None]:
    """No log, one thread."""
    with quiet():
        yield


@pytest.mark.parametrize("part", range(ROUNDS))
def test_every_invariant_holds(tmp_path: Path, part: int) -> None:
    """Whatever a source, its connector, broker, catalog, others and crashes do: each table is as acknowledged."""
    first = (SEED or 0) * 1_000_003 + part * EACH * SCRIPT
    for seed in range(first, first + EACH * SCRIPT, SCRIPT):
        failure = tell(make_story(seed), str(tmp_path))
        assert failure is None, f"python -m tests.simulation --seed {seed}\n{shrink(failure, str(tmp_path))}"


def test_messages_are_read_as_the_product_reads_them() -> None:
    """What is read quickly has the types, the values and the tombstones that the product's own deserializer finds."""
    asked = FORMATS["json"].deserializer(ReadOptions())
    for seed, clock in enumerate(CLOCKS):
        rng, source = Random(seed), Source("db.public.t0", 1, clock, leaves_out=seed % 2 == 0)
        for _ in range(40):
            source.live(rng, 4)
        for start in range(0, len(source.log), 5):
            some = source.log[start : start + rng.randint(1, 9)]
            for stage, texts in (
                ("VALUE_CONVERTER", [one.value for one in some]),
                ("KEY_CONVERTER", [one.key for one in some]),
            ):
                wanted, found = asked.decode(pa.array(texts, pa.binary()), stage), read_plain(texts)
                assert found is not None
                assert found.tombstones.tolist() == wanted.tombstones.tolist()
                assert [block.rows.tolist() for block in found.blocks] == [
                    block.rows.tolist() for block in wanted.blocks
                ]
                assert all(one.fields.equals(own.fields) for one, own in zip(found.blocks, wanted.blocks, strict=True))


@pytest.mark.parametrize(
    "text", [b"{broken", b'{"id": 1.5}', b'{"id": true}', b"{}", b"7", b'{"id": 9223372036854775808}']
)
def test_other_messages_are_left_to_the_product(text: bytes) -> None:
    """Nothing else is read quickly."""
    assert read_plain([b'{"id": 1}', text]) is None


@pytest.mark.thorough
def test_many_histories(tmp_path: Path) -> None:
    """A thousand others."""
    first = (SEED or 0) * 1_000_003 + 1_000_000
    for seed in range(first, first + 1000):
        failure = tell(make_story(seed), str(tmp_path))
        assert failure is None, f"python -m tests.simulation --seed {seed}\n{shrink(failure, str(tmp_path))}"


@pytest.mark.parametrize("found", FOUND)
def test_what_was_found_stays_away(tmp_path: Path, found: str) -> None:
    """Each of these stories was wrong once."""
    world, steps = FOUND[found]
    failure = tell(Story(world, steps), str(tmp_path))
    assert failure is None, str(failure)
