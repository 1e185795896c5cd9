"""sizes -> verdicts: the benchmark beside other programs, without a broker or a JVM."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import attrs
import pytest

from benchmarks.contenders import Finished, Line, Place
from benchmarks.figures import Run, run_of
from benchmarks.generate import ENVELOPE_COLUMNS, VALUE_COLUMNS, rows_before, upsert_events
from benchmarks.measure import Memory, Sample, Usage
from benchmarks.messages import envelopes, full_envelopes
from benchmarks.peers.commits import CommitWatch, shares
from benchmarks.peers.figures import Summary, summaries_of
from benchmarks.peers.flink_sql import statements
from benchmarks.peers.plan import peer_cases, peer_sizes, turns, without_round
from benchmarks.peers.programs import connector_properties, peer_command
from benchmarks.peers.report import PeerResults, row_of, write
from benchmarks.peers.suite import unread
from benchmarks.peers.verdicts import peer_verdicts
from benchmarks.reference import write_reference
from benchmarks.session import catalog_properties
from benchmarks.verdicts import Verdict

SIZES = peer_sizes(8_000, 5_000, 1_000)
CASES = {case.name: case for case in peer_cases(SIZES)}
CATALOG = catalog_properties(Path("/w"))


def run_at(name: str, wall_s: float, cpu_s: float = 10.0, fault: str | None = None) -> Run:
    """A run of four commits, of 500,000 events each, that took `wall_s` seconds after the first."""
    lines = [Line(10 + n, {"event": "batch committed", "batch": n, "seconds": 1.0}) for n in range(4)]
    lines += [Line(21, {"event": "batch read", "batch": n, "events": 500_000, "offsets": {"0": 9}}) for n in range(4)]
    usage = Usage((Sample(0.0, 0.0, 0.0, 0.0), Sample(2 * wall_s, cpu_s, 1.0, cpu_s)), Memory(1, 1, 1, 3 << 20))
    run = run_of(attrs.evolve(CASES[without_round(name)], name=name), Finished(0.0, 0, tuple(lines), usage, ""))
    assert run.warm is not None
    warm = attrs.evolve(run.warm, events=1_000_000, wall_s=wall_s, tree_cpu_s=cpu_s)
    return attrs.evolve(run, warm=warm, files={"data_files": 2, "delete_files": 1}, correct=True, fault=fault)


def by_start(start: str, found: Sequence[Verdict]) -> Verdict:
    """The verdict whose name starts so."""
    return next(verdict for verdict in found if verdict.name.startswith(start))


def test_contenders_run_in_turns() -> None:
    """Every wanted case runs once before any runs again, each time into a table of its own."""
    found = turns(list(CASES.values()), 2, ["append-o", "*-flink"])
    names = ["append-ours", "append-flink", "upsert-flink"]
    assert [case.name for case in found] == [f"{name}-{number}" for number in (1, 2) for name in names]
    assert len({case.table for case in found}) == 6
    assert {without_round(case.name) for case in found} == set(names)


def test_small_runs_have_several_batches() -> None:
    """Batches are no larger than a quarter of the topic, and no larger than what a full run has."""
    assert CASES["append-ours"].batch_events == 2_000
    full = {case.name: case.batch_events for case in peer_cases(peer_sizes(8_000_000, 5_000_000, 1_000_000))}
    assert (full["append-ours"], full["upsert-ours"], full["upsert-merge-mor"]) == (500_000, 250_000, 250_000)


def test_full_replica_identity_has_the_row_before() -> None:
    """Updates and deletes carry the row that their key had before, creates none; the rest is as without."""
    events = upsert_events(500, 40, 1, "orders")
    pairs = zip(
        [json.loads(value) for chunk in full_envelopes(events) for _, value in chunk],
        [json.loads(value) for chunk in envelopes(events) for _, value in chunk],
        rows_before(events).to_pylist(),
        strict=True,
    )
    newest: dict[int, dict[str, object]] = {}
    for place, (full, plain, before) in enumerate(pairs):
        row = {name: value for name, value in events.rows.slice(place, 1).to_pylist()[0].items() if name in before}
        assert before == newest.get(row["id"], row)
        newest[row["id"]] = row
        assert full["before"] == (None if full["op"] == "c" else before)
        assert {**full, "before": None} == {**plain, "before": None}


def test_flink_reads_what_debezium_json_tells() -> None:
    """Values are columns, what surrounds them is metadata, and the operation is left out; the key saves state."""
    made = list(statements(CASES["upsert-flink"], "localhost:1", CATALOG))
    create, source, insert = made[2:]
    assert "'type' = 'iceberg'" in made[0]
    assert made[0].count("'type'") == 1
    assert all(f"`{name}`" in create for name in ENVELOPE_COLUMNS if name != "__op")
    assert "__op" not in create
    assert "PRIMARY KEY (`id`) NOT ENFORCED" in create
    assert "PRIMARY KEY (`id`) NOT ENFORCED" in source
    assert "'format' = 'debezium-json'" in source
    assert "'scan.bounded.mode' = 'latest-offset'" in source
    assert "`__db`" not in source
    assert "upsert-enabled" in insert


def test_flink_appends_plain_json() -> None:
    """Flattened events are JSON with all columns in the value, and the table has no key."""
    *_, create, source, insert = statements(CASES["append-flink"], "localhost:1", CATALOG)
    assert "PRIMARY KEY" not in create + source
    assert "'format' = 'json'" in source
    assert "METADATA" not in source
    assert "upsert-enabled" not in insert


def test_connect_appends_to_a_table_of_its_own_making() -> None:
    """The sink creates its table in the catalog of all contenders, by the name that the check looks for."""
    found = connector_properties(CASES["append-connect"], CATALOG)
    assert found["iceberg.tables"] == CASES["append-connect"].table
    assert found["iceberg.catalog"] == "default"
    assert found["iceberg.catalog.uri"] == CATALOG["uri"]
    assert found["iceberg.tables.auto-create-enabled"] == "true"


def test_ours_and_the_homemade_run_as_in_the_main_benchmark(tmp_path: Path) -> None:
    """Who is no peer gets the command line that `make bench` gives it."""
    place = Place(tmp_path, "localhost:1", None)
    assert peer_command(CASES["append-ours"], place)[2:4] == ["connector", "run"]
    assert peer_command(CASES["upsert-merge-mor"], place)[2] == "benchmarks.homemade"


def test_a_reference_lacks_what_a_contender_cannot_know(tmp_path: Path) -> None:
    """Flink's upserted table is compared without the operation, everybody else's with all columns."""
    import pyarrow.parquet as pq

    events = upsert_events(100, 10, 1, "orders")
    for name, columns in (("upsert-flink", {"__op"}), ("upsert-ours", set())):
        run = attrs.evolve(run_at(f"{name}-1", 1.0), offsets=None)
        file = write_reference(run, events, 10, tmp_path)["reference"]
        assert set(ENVELOPE_COLUMNS) - set(pq.read_table(file).column_names) == columns
    assert set(VALUE_COLUMNS) <= set(ENVELOPE_COLUMNS)


@pytest.mark.parametrize(
    ("events", "added", "parts"),
    [(10, [9], [10]), (10, [3, 3, 3], [3, 4, 3]), (1_000, [90, 0, 810], [100, 0, 900]), (5, [], [])],
)
def test_events_are_shared_as_rows_were_added(events: int, added: list[int], parts: list[int]) -> None:
    """A commit's events are its share of the added rows; together they are all events."""
    assert shares(events, added) == parts


def test_commits_are_said_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each snapshot with rows is a line when it is first seen; at the end a line tells its events."""
    watch = CommitWatch(tmp_path, "a.b")
    first, empty = {"snapshot-id": 1, "summary": {"added-records": "30"}}, {"snapshot-id": 2, "summary": {}}
    third = {"snapshot-id": 3, "summary": {"added-records": "10"}}
    for snapshots in ([], [first, empty], [first, empty, third]):
        watch.note(json.dumps({"snapshots": snapshots}).encode(), 0.0)
    watch.start()
    watch.tell(80, {"0": 80})
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(line["event"], line["batch"], line.get("events")) for line in lines] == [
        ("batch committed", 0, None),
        ("batch committed", 1, None),
        ("batch read", 0, 60),
        ("batch read", 1, 20),
    ]


def test_medians_of_the_rounds() -> None:
    """Each figure is the median of its rounds, and a wrong table of one round is not forgotten."""
    runs = [run_at(f"append-ours-{n}", wall_s) for n, wall_s in ((1, 1.0), (2, 4.0), (3, 2.0))]
    (found,) = summaries_of(runs)
    assert (found.name, found.contender, found.rounds, found.events) == ("append-ours", "ours", 3, 2_000_000)
    assert (found.wall_s, found.warm_events_per_s) == (4.0, 500_000.0)
    assert found.warm_cpu_s_per_million == pytest.approx(10.0)
    assert (found.events_per_s, found.cpu_s_per_million) == (500_000.0, 5.0)
    assert (found.data_files, found.delete_files, found.memory_bytes, found.faults) == (2, 1, 3 << 20, ())
    (spoilt,) = summaries_of([*runs, run_at("append-ours-4", 1.0, fault="wrong")])
    assert spoilt.faults == ("wrong",)
    assert row_of(spoilt)[-1] == "1 WRONG"


def test_few_commits_have_no_warm_figures() -> None:
    """What is committed second was mostly read before the first commit was visible: three commits say too little."""
    run = run_at("append-flink-1", 1.0)
    (found,) = summaries_of([attrs.evolve(run, batches=run.batches[:3])])
    assert (found.warm_events_per_s, found.warm_cpu_s_per_million) == (None, None)
    assert found.wall_s == 2.0


def peers(**changes: float) -> list[Summary]:
    """Summaries in which ours takes 2 CPU s per million, Flink 5; `changes` are wall seconds by name."""
    walls = {"append-ours": 1.0, "append-flink": 2.5, "upsert-ours": 1.0, "upsert-merge-mor": 3.0} | changes
    return summaries_of(
        [run_at(f"{name}-1", wall_s, 5.0 if "flink" in name else 2.0) for name, wall_s in walls.items()]
    )


def test_verdicts_compare_with_flink() -> None:
    """CPU and clock are compared with Flink's, MERGE by the clock; what has no Flink beside it is not measured."""
    found = peer_verdicts(peers())
    assert by_start("append CPU per million", found).reached is True
    assert by_start("append CPU / Flink", found).found == pytest.approx(0.4)
    assert by_start("append events/s / flink", found).found == pytest.approx(2.5)
    assert by_start("append events/s / Flink's, whole", found).reached is True
    assert by_start("upsert CPU / Flink", found).reached is None
    assert by_start("upsert events/s / merge-mor", found).reached is False
    assert by_start("tables equal", found).reached is True


def test_wrong_figures_do_not_count() -> None:
    """A wrong table of a contender makes its figures not count, and a small run says nothing of the whole process."""
    ours, flink = peers()[:2]
    wrong = peer_verdicts([ours, attrs.evolve(flink, faults=("wrong",))])
    assert by_start("append CPU / Flink", wrong).reached is None
    assert by_start("tables equal", wrong).reached is False
    small = peer_verdicts([attrs.evolve(ours, events=999_999), flink])
    assert by_start("append events/s / Flink's, whole", small).reached is None


def test_a_contender_that_stops_early_is_a_fault() -> None:
    """Events that were not committed are told."""
    assert unread(10, 10) is None
    assert unread(9, 10) == "9 of 10 events were committed"


def test_results_are_json_and_a_picture(tmp_path: Path) -> None:
    """Summaries, runs and verdicts are written as JSON, and drawn."""
    runs = [run_at("append-ours-1", 1.0), attrs.evolve(run_at("append-flink-1", 2.0), warm=None)]
    found = summaries_of(runs)
    results = PeerResults(SIZES, tuple(runs), tuple(found), tuple(peer_verdicts(found)), 1.0, (0.5, 2.0))
    file, picture = write(results, tmp_path)
    body = json.loads(file.read_text())
    assert body["summaries"]["append-flink"]["warm_events_per_s"] is None
    assert {"flink-clients", "iceberg-kafka-connect", "pyspark"} <= set(body["versions"])
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert not results.failed
