"""seed -> verdicts: the benchmark's generator, reference and figures, without a broker or a JVM."""

from __future__ import annotations

import json
from pathlib import Path

import attrs
import numpy as np
import pytest

from benchmarks.chart import draw
from benchmarks.contenders import Finished, Line, Place, command, remember
from benchmarks.figures import Run, run_of
from benchmarks.generate import (
    ENVELOPE_COLUMNS,
    FLATTENED_COLUMNS,
    append_events,
    final_rows,
    prefilled_rows,
    spread,
    upsert_events,
)
from benchmarks.latency import Latency
from benchmarks.maintenance.figures import Maintenance, maintenance_verdicts
from benchmarks.measure import Memory, Sample, Usage, kind_of
from benchmarks.messages import envelopes, flattened, keys_of
from benchmarks.partition import murmur2, offsets_within, partitions_of
from benchmarks.plan import Case, Sizes, cases, chosen, topic_events
from benchmarks.printing import verdict_line
from benchmarks.reference import consumed_of
from benchmarks.report import row_of
from benchmarks.verdicts import Verdict, verdicts
from connector.settings import load

EVENTS = upsert_events(3_000, 200, 7, "orders")
KAFKA_HASHES = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"abc": 479470107,
}


def messages_of(chunks: object) -> list[tuple[bytes, bytes]]:
    """All messages of a generator in one list."""
    return [message for chunk in chunks for message in chunk]  # type: ignore[attr-defined]


def test_murmur2_is_kafkas() -> None:
    """The hash of keys of several lengths in one call is the one that the Java client computes."""
    found = murmur2(list(KAFKA_HASHES)).astype(np.uint32).astype(np.int32)
    assert found.tolist() == list(KAFKA_HASHES.values())


def test_partition_is_positive_modulo() -> None:
    """A negative hash goes to the partition that clearing its sign bit gives, as in the Java client."""
    keys = list(KAFKA_HASHES)
    assert partitions_of(keys, 4).tolist() == [(value & 0x7FFFFFFF) % 4 for value in KAFKA_HASHES.values()]


def test_spread_events_are_of_the_table_that_their_id_says() -> None:
    """All changes of an id are of one source table, every table has some, and nothing else of an event changes."""
    events = upsert_events(2_000, 400, 25, "many")
    made = spread(events, ["a", "b", "c"], 25)
    tables = dict(zip(made.ids.tolist(), made.rows["__table"].to_pylist(), strict=True))
    assert made.rows["__table"].to_pylist() == [tables[number] for number in made.ids.tolist()]
    assert set(tables.values()) == {"a", "b", "c"}
    assert made.rows.drop_columns("__table").equals(events.rows.drop_columns("__table"))


def test_offsets_count_within_each_partition() -> None:
    """Each event's offset is its place among the events of its partition."""
    assert offsets_within(np.array([1, 0, 1, 1, 0]), 4).tolist() == [0, 0, 1, 2, 1]


def test_same_seed_same_events() -> None:
    """Two generations are equal, so that reference and topic can be made apart."""
    again = upsert_events(3_000, 200, 7, "orders")
    assert again.rows.equals(EVENTS.rows)
    assert not upsert_events(3_000, 200, 7, "orders", seed=6).rows.equals(EVENTS.rows)


def test_flattened_messages_are_the_rows() -> None:
    """A flattened message parsed as JSON is its row: 13 fields, with doubles that stay doubles."""
    events = append_events(70_000, "orders")
    messages = messages_of(flattened(events))
    assert [json.loads(value) for _, value in messages[-50:]] == events.rows.slice(69_950).to_pylist()
    assert len(FLATTENED_COLUMNS) == len(json.loads(messages[0][1])) == 13
    assert all(isinstance(json.loads(value)["discount"], float) for _, value in messages)


def test_envelopes_carry_the_rows() -> None:
    """An envelope holds its row in `after`, or only the key in `before` of a delete, and the metadata beside it."""
    for (key, value), row in zip(messages_of(envelopes(EVENTS)), EVENTS.rows.to_pylist(), strict=True):
        body = json.loads(value)
        image = body["before"] if row["__op"] == "d" else body["after"]
        assert json.loads(key) == {"id": row["id"]} == {"id": image["id"]}
        if row["__op"] != "d":
            assert image == {name: row[name] for name in image}
        assert (body["op"], body["ts_ms"]) == (row["__op"], row["__ts_ms"])
        assert (body["source"]["ts_ns"], body["source"]["db"]) == (row["__source_ts_ns"], row["__db"])


def test_positions_grow_over_parts() -> None:
    """Envelopes of a part of the stream have the log positions that they have in the whole."""
    whole, part = messages_of(envelopes(EVENTS)), messages_of(envelopes(EVENTS.part(1_000, 10)))
    assert part == whole[1_000:1_010]


def test_mix_of_operations() -> None:
    """About 20 % of the events are creates, 70 % updates and 10 % deletes, in the first half as in the second."""
    op = np.array(upsert_events(40_000, 8_000, 25, "orders").rows["__op"].to_pylist())
    for half in (op[:20_000], op[20_000:]):
        assert [round(float((half == letter).mean()), 1) for letter in "cud"] == [0.2, 0.7, 0.1]


@pytest.mark.parametrize("prefilled", [0, 900])
def test_reference_is_a_replay(prefilled: int) -> None:
    """The reference equals a dictionary that every consumed event is applied to in order."""
    ends = {"0": 200, "1": 10, "2": 700, "3": 0}
    consumed = consumed_of(EVENTS, ends)
    before = prefilled_rows(prefilled, "orders") if prefilled else None
    expected = {row["id"]: row for row in before.to_pylist()} if before else {}
    for row in EVENTS.rows.filter(consumed).to_pylist():
        if row["__op"] == "d":
            expected.pop(row["id"], None)
        else:
            expected[row["id"]] = row
    found = final_rows(EVENTS, consumed, before)
    assert {row["id"]: row for row in found.to_pylist()} == expected
    assert found.num_rows == len(expected)
    assert tuple(found.column_names) == ENVELOPE_COLUMNS


def test_consumed_are_the_events_below_the_ends() -> None:
    """Exactly the first events of each partition count, as many as its end offset; all of them without offsets."""
    consumed = consumed_of(EVENTS, {"0": 3, "2": 5})
    partition = partitions_of(keys_of(EVENTS.ids), 4)
    assert np.bincount(partition[consumed], minlength=4).tolist() == [3, 0, 5, 0]
    assert consumed_of(EVENTS, None).all()


def test_full_size_is_the_issues() -> None:
    """Without options there are 2,000,000 appends and 1,000,000 upserts in four batches, and ids over all rows."""
    sizes = Sizes()
    by_name = {case.name: case for case in cases(sizes)}
    assert topic_events(sizes) == {
        "orders_append": 2_000_000,
        "orders_upsert": 1_000_000,
        "orders_large": 2_000_000,
        "orders_many": 2_000_000,
    }
    assert by_name["append-ours"].batch_events == by_name["append-from-json"].batch_events == 500_000
    assert by_name["upsert-full-ours"].batch_events == by_name["upsert-full-merge-mor"].batch_events == 250_000
    assert by_name["upsert-large-ours"].batch_events == 1_000_000
    assert sizes.stride * (sizes.keys - 1) < sizes.rows


@pytest.mark.parametrize(
    ("patterns", "count"), [((), 15), (("append",), 3), (("*-ours",), 9), (("upsert-full", "append-o"), 5), (("x",), 0)]
)
def test_only_chooses_cases(patterns: tuple[str, ...], count: int) -> None:
    """A case is chosen by the start of its name or a pattern."""
    assert len(chosen(cases(Sizes()), patterns)) == count


def test_properties_are_valid_settings(tmp_path: Path) -> None:
    """The properties file of our own contender loads without a fault and says what the case says."""
    case = Case("upsert-empty-ours", "ours", "orders_upsert", 250_000)
    arguments = command(case, Place(tmp_path, "127.0.0.1:9", None))
    settings = load([Path(arguments[-1])])
    assert "--once" in arguments
    assert settings.kafka.topics == ("bench.public.orders_upsert",)
    assert (settings.table.upsert, settings.table.keep_deletes) == (True, False)
    assert settings.batch.max_events >= case.batch_events
    assert dict(settings.spark)["spark.driver.memory"] == "2g"
    assert settings.catalog.properties["uri"].endswith("catalog.db")


def test_json_lines_are_remembered() -> None:
    """Only JSON objects with an event are kept; other output of a process is passed over."""
    lines: list[Line] = []
    for raw in ('{"event": "batch committed", "batch": 0}\n', "Warning: x\n", "{broken\n", '{"level": "info"}\n'):
        assert remember(raw, lines) == raw
    assert [line.fields["event"] for line in lines] == ["batch committed"]


@pytest.mark.parametrize(
    ("name", "kind"), [("java", "jvm"), ("python3.11", "worker"), ("sh", None), ("C2 CompilerThre", None)]
)
def test_kinds_of_processes(name: str, kind: str | None) -> None:
    """Memory is counted for the JVM and for Python, not for shells or copies of the JVM on their way to an exec."""
    assert kind_of(name) == kind


def finished(homemade: bool, exit_code: int = 0) -> Finished:
    """A process that started at 100 s, used one core and committed 10 events at 110, 112 and 116 s."""
    own = {} if homemade else {"events": 10}
    lines = [
        Line(at_s, {"event": "batch committed", "batch": number, "seconds": seconds, **own})
        for number, (at_s, seconds) in enumerate([(110.0, 3.0), (112.0, 1.5), (116.0, 2.5)])
    ]
    told = [Line(117.0, {"event": "batch read", "batch": n, "events": 10, "offsets": {"0": 5 * n}}) for n in range(3)]
    samples = tuple(Sample(at_s, at_s - 100, (at_s - 100) / 10, 2 * at_s) for at_s in (100.0, 111.0, 118.0))
    usage = Usage(samples, Memory(3 << 20, 2 << 20, 1 << 20))
    return Finished(100.0, exit_code, (*lines, *(told if homemade else [])), usage, "the end")


@pytest.mark.parametrize("homemade", [True, False])
def test_warm_figures_leave_out_the_first_batch(homemade: bool) -> None:
    """Warm speed and CPU are taken between the first commit and the last, whoever tells the events."""
    run = run_of(cases(Sizes())[0], finished(homemade))
    assert run.fault is None
    assert run.start_to_first_commit_s == 10.0
    assert run.warm is not None
    assert (run.warm.events, run.warm.wall_s, run.warm.batches) == (20, 6.0, 2)
    assert run.warm.events_per_s == pytest.approx(20 / 6)
    assert run.warm.tree_cpu_s == pytest.approx(6.0)
    assert run.warm.cpu_s_per_million == pytest.approx(6.6 / 20 * 1e6)
    assert run.offsets == ({"0": 10} if homemade else None)


def test_a_failed_process_is_a_fault() -> None:
    """An exit code other than 0 makes the run a fault that shows the end of the log, and its figures do not count."""
    run = run_of(cases(Sizes())[0], finished(False, exit_code=1))
    assert run.fault is not None
    assert "the end" in run.fault
    assert by_start("append CPU", verdicts({run.case.name: run}, None)).found is None


def by_start(start: str, found: list[Verdict]) -> Verdict:
    """The verdict whose name starts so."""
    return next(verdict for verdict in found if verdict.name.startswith(start))


def run_at(case: Case, wall_s: float, correct: bool = True) -> Run:
    """A run whose warm batches took `wall_s` seconds in all."""
    run = run_of(case, finished(False))
    assert run.warm is not None
    return attrs.evolve(run, warm=attrs.evolve(run.warm, wall_s=wall_s), correct=correct)


def test_verdicts_compare_with_the_homemade_runs() -> None:
    """Ratios are those of warm events per second, and a wrong table makes its figures not count."""
    by_name = {case.name: case for case in cases(Sizes())}
    names = {"append-ours": 1.0, "append-from-json": 1.7, "upsert-full-ours": 1.0, "upsert-full-merge-mor": 9.0}
    runs = {name: run_at(by_name[name], wall_s) for name, wall_s in names.items()}
    found = verdicts(runs, None)
    append, full = by_start("append / from_json", found), by_start("upsert, full", found)
    assert append.found == pytest.approx(1.7)
    assert append.reached is False
    assert full.found == pytest.approx(9.0)
    assert full.reached is True
    assert by_start("upsert, empty / MERGE", found).reached is None
    assert by_start("tables equal", found).reached is True
    wrong = verdicts(runs | {"append-ours": run_at(by_name["append-ours"], 1.0, correct=False)}, None)
    assert by_start("append / from_json", wrong).reached is None
    assert by_start("tables equal", wrong).reached is False


def test_heap_counts_large_batches_only() -> None:
    """The verdict on the heap needs a batch of 1,000,000 events; a scaled-down run does not give one."""
    run = run_at(cases(Sizes())[-1], 2.0)
    small = verdicts({run.case.name: run}, None)
    large = attrs.evolve(run, batches=tuple(attrs.evolve(batch, events=1_000_000) for batch in run.batches))
    assert by_start("heap", small).reached is None
    assert by_start("heap", verdicts({run.case.name: large}, None)).reached is True


def test_latency_verdicts() -> None:
    """Half of all rows within half a second, 95 of 100 within a second, a first commit within eight."""
    latency = Latency(9, 3, 499.0, 1_001.0, 4_100.0, 5_000.0, 5_000.0, 0.7, 9.0, Memory(1, 1, 1))
    found = verdicts({}, latency)
    assert by_start("produced to visible, p50", found).reached is True
    assert by_start("produced to visible, p95", found).reached is False
    assert by_start("start to first commit", found).reached is False


def test_verdict_line_says_the_ratio() -> None:
    """A missed upper limit shows how far it was missed."""
    line = verdict_line(Verdict("worker", 800.0, 600.0, "at most", "MB"))
    assert line.startswith("MISSED")
    assert "0.75 of the target" in line


def test_results_are_json_and_a_picture(tmp_path: Path) -> None:
    """Runs with and without warm batches can be written as JSON, as a line of the table and as a chart."""
    runs = [run_at(case, 2.0) for case in cases(Sizes())]
    runs[-1] = attrs.evolve(runs[-1], warm=None)
    draw(runs, tmp_path / "chart.png")
    assert (tmp_path / "chart.png").read_bytes().startswith(b"\x89PNG")
    assert row_of(runs[-1])[3] == "-"
    assert runs[0].as_json()["warm"]["events_per_s"] == 10.0
    assert json.loads(json.dumps([run.as_json() for run in runs]))[-1]["warm"] is None


def test_maintenance_verdicts() -> None:
    """Ratios of one run: readers, time, bytes, size of the table, and delay; what was not measured is said."""
    times = {"read_before": (9.0, 9.0), "read_after": (1.1, 1.2), "read_fresh": (1.0, 1.0)}
    times |= {"read_merged": (1.2, 1.1), "convert": (2.0, 2.0), "convert_again": (1.0, 1.0)}
    times |= {"convert_large": (2.8, 2.5), "rewrite": (10.0, 7.0)}
    costs = {name: {"wall_s": wall, "cpu_s": cpu} for name, (wall, cpu) in times.items()}
    sizes = {"rows": 100, "batches": 5, "changes": 9, "version": 3, "convert_bytes": 49, "rewrite_bytes": 1000}
    found = Maintenance.parse({**sizes, **costs})
    assert Maintenance.parse(attrs.asdict(found)) == found
    reached = [verdict.reached for verdict in maintenance_verdicts(found, 1000.0, 1250.0)]
    # By the clock and by the CPU: reads, conversion; bytes; both of four times the rows; delay.
    assert reached == [True, False, False, True, True, False, True, False, True, True]
    assert {verdict.reached for verdict in maintenance_verdicts(None)} == {None}
