"""lines and samples -> verdicts: the producer's part of the benchmark, without a broker or a JVM."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path

import attrs
import pytest

from benchmarks.chart import draw
from benchmarks.contenders import Finished, Line, Place
from benchmarks.measure import Memory, Sample, Usage
from benchmarks.plan import Sizes
from benchmarks.report import Results
from benchmarks.source.check import fault_of
from benchmarks.source.figures import Changes, Idle, Source, Timing, changes_of, idle_of
from benchmarks.source.plan import chosen_source, source_cases
from benchmarks.source.publish import figures_of, write_properties
from benchmarks.source.report import changes_table, publishing_line
from benchmarks.source.rest import RestCatalog
from benchmarks.source.verdicts import source_verdicts
from benchmarks.verdicts import Verdict
from connector.settings.source.settings import load_source


def timing(seconds: float) -> Timing:
    """Three rounds with this median, the first one slow."""
    return Timing((9 * seconds, seconds, seconds), (2 * seconds,) * 3)


SOURCE = Source(
    changes=(
        Changes("source-cow-v2", 100, timing(2.0), timing(5.0)),
        Changes("source-cow-v3", 100, timing(2.0), timing(5.0)),
        Changes("source-mor-v2", 100, timing(1.0)),
        Changes("source-mor-v2-large", 100, timing(1.4)),
    ),
    idle=Idle(10_000, (1.0, 2.0, 300.0), (120.0, 130.0, 140.0), 1.0),
)


def finished() -> Finished:
    """A process that started at 100 s, used a core and ended its parts at 110, 112 and 116 s."""
    lines = tuple(Line(at_s, {"event": "part read"}) for at_s in (110.0, 112.0, 116.0))
    samples = tuple(Sample(at_s, at_s - 100, (at_s - 100) / 10, 2 * at_s) for at_s in (100.0, 111.0, 118.0))
    return Finished(100.0, 0, lines, Usage(samples, Memory(3 << 20, 2 << 20, 1 << 20)), "the end")


def found(start: str, verdicts: list[Verdict]) -> Verdict:
    """The verdict whose name starts so."""
    return next(verdict for verdict in verdicts if verdict.name.startswith(start))


@pytest.mark.parametrize(
    ("patterns", "wanted"),
    [
        ((), (6, True, True)),
        (("source",), (6, True, True)),
        (("source-mor",), (4, False, False)),
        (("source-publish",), (0, True, False)),
        (("append",), (0, False, False)),
    ],
)
def test_only_chooses_cases_of_the_source(patterns: tuple[str, ...], wanted: tuple[int, bool, bool]) -> None:
    """The producer's cases are chosen by the start of their names, as the sink's are."""
    cases, publishes, idles = chosen_source(patterns)
    assert (len(cases), publishes, idles) == wanted


def test_the_view_is_measured_on_copy_on_write_alone() -> None:
    """Spark's view refuses delete files, so only copy-on-write tables are compared with it."""
    assert {case.name: case.view for case in source_cases() if case.view} == {
        "source-cow-v2": True,
        "source-cow-v3": True,
    }


def test_warm_envelopes_are_those_after_the_first_part() -> None:
    """Rate and CPU of the initial read are taken from the end of the first part to the end of the last."""
    run = finished()
    publishing = figures_of(run, list(run.lines), 100, 700, None)
    assert (publishing.rows, publishing.parts, publishing.start_to_first_part_s) == (700, 3, 10.0)
    assert publishing.envelopes_per_s == pytest.approx(600 / 6)
    assert publishing.cpu_s_per_million == pytest.approx(6.6 / 600 * 1e6)
    assert "100 envelopes/s" in publishing_line(publishing)
    single = figures_of(run, [run.lines[0]], 700, 700, None)
    assert single.envelopes_per_s is None
    assert "nothing warm" in publishing_line(single)


def test_ratios_are_those_of_medians() -> None:
    """The view's median over ours, the large table's over the small one's, and the median poll are judged."""
    verdicts = source_verdicts(SOURCE)
    assert (found("copy-on-write v2", verdicts).found, found("copy-on-write v2", verdicts).reached) == (2.5, True)
    assert found("copy-on-write v3", verdicts).reached is False
    assert found("merge-on-read v2", verdicts).found == pytest.approx(1.4)
    assert found("merge-on-read v2", verdicts).reached is False
    assert found("merge-on-read v3", verdicts).reached is None
    assert found("envelopes", verdicts).reached is None
    assert found("idle poll, 10,000 snapshots, JDBC", verdicts).reached is True
    assert found("idle poll, 10,000 snapshots, REST", verdicts).reached is False
    assert found("catalog requests", verdicts).reached is True
    assert found("changes and topics", verdicts).found == 4


def test_wrong_changes_do_not_count() -> None:
    """A case whose changes are wrong gives no ratio, and the run has failed."""
    wrong = attrs.evolve(SOURCE.changes[0], fault="ours: 1 changes missing, 0 that are not right")
    source = attrs.evolve(SOURCE, changes=(wrong, *SOURCE.changes[1:]))
    assert found("copy-on-write v2", source_verdicts(source)).reached is None
    assert found("changes and topics", source_verdicts(source)).reached is False
    assert source.failed
    assert not SOURCE.failed


def test_what_the_process_wrote_is_read_back() -> None:
    """A case without a view, a failed case and a run without idle polls are read for what they are."""
    body = {"changes": 4, "ours": {"seconds": [1.0, 2.0, 3.0], "cpu_s": [1.0, 1.0, 1.0]}, "fault": None}
    case = changes_of("source-mor-v2", body)
    assert case.ours is not None
    assert (case.changes, case.ours.wall_s, case.view, case.fault) == (4, 2.0, None, None)
    assert changes_of("source-cow-v2", {"fault": "gone"}) == Changes("source-cow-v2", fault="gone")
    assert idle_of({}) is None


def test_results_of_the_source_are_json_a_table_and_a_picture(tmp_path: Path) -> None:
    """The figures can be written as JSON with those derived, as a table and as a chart without sink cases."""
    run = finished()
    source = attrs.evolve(SOURCE, publishing=figures_of(run, list(run.lines), 100, 700, None))
    results = Results(Sizes(), (), None, tuple(source_verdicts(source)), 1.0, source)
    body = json.loads(json.dumps(results.as_json()["source"]))
    assert body["publishing"]["envelopes_per_s"] == 100
    assert body["changes"][0]["view"]["seconds"] == [45.0, 5.0, 5.0]
    assert changes_table(source).row_count == 4
    draw((), tmp_path / "chart.png", source)
    assert (tmp_path / "chart.png").read_bytes().startswith(b"\x89PNG")


def test_properties_of_the_initial_read_are_valid_settings(tmp_path: Path) -> None:
    """The program's file loads without a fault: JSON without schema blocks, a million rows in a part."""
    settings = load_source([write_properties(Place(tmp_path, "127.0.0.1:9", None), 5_000_000)], environ={})
    assert settings.capture.max_batch_size == 1_000_000
    assert not settings.outgoing.value.schemas
    assert settings.outgoing.topic("lake.published") == "bench.lake.published"


def test_rest_catalog_counts_requests(tmp_path: Path) -> None:
    """The benchmark's catalog serves its one table, knows no other, and counts what it was asked."""
    file = tmp_path / "metadata.json"
    file.write_text('{"format-version": 2}')
    with RestCatalog("lake", "old", file) as catalog:
        uri = catalog.spark_settings("rest")["spark.sql.catalog.rest.uri"]
        with urllib.request.urlopen(f"{uri}/v1/namespaces/lake/tables/old?snapshots=all") as answer:
            assert json.loads(answer.read())["metadata"] == {"format-version": 2}
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(f"{uri}/v1/namespaces/lake/tables/other")
        assert catalog.requests == 2


def test_a_topic_that_differs_is_a_fault() -> None:
    """The sums that differ are named."""
    right = {"count": 2, "whole_rows": 5, "id": 1}
    assert fault_of(right, dict(right)) is None
    assert fault_of(right, right | {"count": 1, "id": 0}) == "1 rows for 2; differs in count, id"
