"""a table -> a topic -> figures: the initial read as a user runs it (`python -m connector run --once FILE`).

How many envelopes a part had is not taken from the program: records carry the time at which its producer made them, and
the broker says how many are older than the line that ends the part.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from benchmarks.contenders import Finished, Line, Place, connector_command, run, step
from benchmarks.session import CATALOG, SPARK, catalog_properties
from benchmarks.source.figures import Publishing
from benchmarks.source.plan import NAMESPACE, PARTITIONS, PARTS, PREFIX, PUBLISH, PUBLISHED, TOPIC, table_name

_LIMIT_S = 30


def measure_publishing(place: Place, rows: int) -> Publishing:
    """Publish the table, then let a process that is not timed compare the topic with it."""
    file = write_properties(place, rows)
    finished = run(connector_command(file, once=True), place.work / f"{PUBLISH}.log", place.broker_pid)
    behind_s = time.time() - time.monotonic()
    parts = [line for line in finished.lines if line.fields["event"] == "part read"]
    if finished.exit_code != 0 or not parts:
        fault = f"exit code {finished.exit_code}, {len(parts)} parts: {finished.tail}"
        return Publishing(0, len(parts), 0, 0, 0, 0, 0, 0, 0, fault)
    before = [records_before(place.bootstrap, line.at_s + behind_s) for line in (parts[0], parts[-1])]
    return figures_of(finished, parts, before[0], before[1], fault_of(place))


def figures_of(finished: Finished, parts: list[Line], first: int, last: int, fault: str | None) -> Publishing:
    """The figures of a run whose topic held `first` records after the first part and `last` after the last."""
    start_s, end_s = parts[0].at_s, parts[-1].at_s
    cpu = finished.usage.cpu_between(start_s, end_s)
    return Publishing(
        rows=last,
        parts=len(parts),
        start_to_first_part_s=start_s - finished.started_s,
        warm_envelopes=last - first,
        warm_s=end_s - start_s,
        tree_cpu_s=cpu["tree"],
        broker_cpu_s=cpu["broker"],
        jvm_bytes=finished.usage.memory.jvm_bytes,
        worker_bytes=finished.usage.memory.worker_bytes,
        fault=fault,
    )


def write_properties(place: Place, rows: int) -> Path:
    """The source's properties: JSON without schema blocks, five parts of a million rows at full size."""
    options = {
        "connector.class": "IcebergSource",
        "name": PUBLISH,
        "bootstrap.servers": place.bootstrap,
        "topic.prefix": PREFIX,
        "table.include.list": table_name(PUBLISHED),
        "iceberg.catalog.catalog-name": CATALOG,
        "iceberg.catalog.table-namespace": NAMESPACE,
        "key.converter.schemas.enable": "false",
        "value.converter.schemas.enable": "false",
        "topic.creation.default.partitions": str(PARTITIONS),
        "max.batch.size": str(-(-rows // PARTS)),
    }
    options |= {f"iceberg.catalog.{key}": value for key, value in catalog_properties(place.warehouse).items()}
    file = place.work / f"{PUBLISH}.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in (options | SPARK).items()))
    return file


def records_before(bootstrap: str, at_s: float) -> int:
    """How many records of the topic were made before a moment (epoch seconds)."""
    client = Consumer({"bootstrap.servers": bootstrap, "group.id": PUBLISH, "log_level": 3})
    try:
        wanted = [TopicPartition(TOPIC, number, round(at_s * 1000)) for number in range(PARTITIONS)]
        ends = [client.get_watermark_offsets(partition, _LIMIT_S)[1] for partition in wanted]
        offsets = client.offsets_for_times(wanted, _LIMIT_S)
    finally:
        client.close()
    return sum(end if partition.offset < 0 else partition.offset for partition, end in zip(offsets, ends, strict=True))


def fault_of(place: Place) -> str | None:
    """What is wrong with the topic; None when its envelopes are the table's rows."""
    job, result = place.work / "source-check.json", place.work / "source-check-result.json"
    body = {"warehouse": str(place.warehouse), "bootstrap": place.bootstrap, "result": str(result)}
    job.write_text(json.dumps(body))
    step("benchmarks.source.check", job, place.work / "source-check.log")
    fault: str | None = json.loads(result.read_text())
    return fault
