"""Failures while a source reads: what may pass is tried again, whatever files of code a stack names."""

from __future__ import annotations

import struct

import pytest
from pyspark.errors import PySparkException

from connector.errors import ConnectorError, FatalError, RetriableError
from connector.iceberg.catalog import file_io
from connector.source.changes.read_errors import _translate, translate_read_errors

pytestmark = pytest.mark.unit

FRAMES = """\tat org.apache.iceberg.parquet.ParquetReader$FileIterator.advance(ParquetReader.java:149)
\tat org.apache.iceberg.io.FilterIterator.hasNext(FilterIterator.java:43)
"""


def _spark(*chain: str) -> str:
    """What Spark says of a task that failed with these causes, outermost first."""
    told = f"\n{FRAMES}Caused by: ".join(chain)
    return (
        "An error occurred while calling o99.collectToPython.\n: org.apache.spark.SparkException: Job aborted due to "
        "stage failure: Lost task 0.0 in stage 4.0 (TID 4) (192.0.2.2 executor driver): "
        f"{told}\n{FRAMES}\t... 22 more\n\nDriver stacktrace:\n{FRAMES}"
        f"\tSuppressed: java.io.FileNotFoundException: of something else\n{FRAMES}Caused by: {told}\n{FRAMES}"
    )


PASSING = {
    "time-out": ["java.net.SocketTimeoutException: Read timed out"],
    "without a message": ["java.net.SocketTimeoutException"],
    "of a named file": [
        "org.apache.iceberg.exceptions.RuntimeIOException: Failed to open file: s3://b/t/data/a.parquet",
        "java.net.SocketTimeoutException: Read timed out",
    ],
    "within decoding": [
        "org.apache.parquet.io.ParquetDecodingException: Can not read value at 1 in block 0 in file s3://b/a.parquet",
        "java.net.SocketException: Connection reset",
    ],
    "throttled": ["software.amazon.awssdk.services.s3.model.S3Exception: Slow down (Service: S3, Status Code: 503)"],
    "io": ["java.io.UncheckedIOException: reading s3://b/t/a.parquet", "java.io.IOException: Input/output error"],
}
LASTING = {
    "no parquet": ["java.lang.RuntimeException: file:/t/data/a.parquet is not a Parquet file. Expected magic number"],
    "gone": ["org.apache.iceberg.exceptions.NotFoundException: Failed to open: file:/t/data/a.parquet"],
    "refused": ["software.amazon.awssdk.services.s3.model.S3Exception: Access Denied (Status Code: 403)"],
    "code": ["java.lang.ClassCastException: class java.lang.Long cannot be cast to class java.lang.Integer"],
}


@pytest.mark.parametrize("chain", PASSING.values(), ids=PASSING.keys())
def test_what_may_pass_is_tried_again(chain: list[str]) -> None:
    """The network or the store is away: tried again, whatever files the message and the stack name."""
    with pytest.raises(RetriableError, match=r"table db\.t, snapshot 7"), translate_read_errors("db.t", 7):
        raise PySparkException(_spark(*chain))


@pytest.mark.parametrize("chain", LASTING.values(), ids=LASTING.keys())
def test_what_lasts_is_not_tried_again(chain: list[str]) -> None:
    """A file that is gone or broken, a store that refuses, and faults of code stop the table."""
    with pytest.raises(FatalError, match=r"table db\.t, snapshot 7"), translate_read_errors("db.t", 7):
        raise PySparkException(_spark(*chain))


@pytest.mark.parametrize(
    "told",
    [
        "org.apache.spark.SparkException: [CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND] Checkpoint block rdd_7_0 not found!",
        "ExecutorLostFailure (executor 4 exited unrelated to the running tasks) Reason: Remote RPC client left",
    ],
)
def test_what_goes_with_an_executor_is_read_again(told: str) -> None:
    """A cluster that loses one stops no table, also where rows were kept there for a second use."""
    with pytest.raises(RetriableError, match=r"db\.t, snapshot 7: .*lost"), translate_read_errors("db.t", 7):
        raise PySparkException(_spark(told))


def test_a_timestamp_too_far_for_nanoseconds_is_told_as_such() -> None:
    """The error names the option and the years, and sends nobody to look for a broken file."""
    overflow = "org.apache.spark.SparkArithmeticException: [ARITHMETIC_OVERFLOW] long overflow. Use 'try_multiply'"
    with (
        pytest.raises(FatalError, match=r"db\.t, snapshot 7: .*2262.*time\.precision\.mode=adaptive") as told,
        translate_read_errors("db.t", 7),
    ):
        raise PySparkException(_spark(overflow))
    assert "file" not in str(told.value)


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (OSError("When reading: AWS Error NETWORK_CONNECTION"), RetriableError),
        (TimeoutError("timed out"), RetriableError),
        (ConnectionResetError(104, "reset"), RetriableError),
        (OSError("When reading: AWS Error ACCESS_DENIED"), FatalError),
        (FileNotFoundError("s3://b/m.avro"), FatalError),
        (PermissionError("m.avro"), FatalError),
        (PermissionError("AWS Error ACCESS_DENIED: the token has expired"), RetriableError),
        (type("EndpointConnectionError", (Exception,), {})("away"), RetriableError),
        (type("HttpResponseError", (Exception,), {})("HTTP status 503"), RetriableError),
        (struct.error("unpack requires a buffer of 8 bytes: secret"), FatalError),
        (ValueError("secret"), FatalError),
        (RetriableError("db.t: the catalog is away"), RetriableError),
    ],
    ids=lambda given: type(given).__name__ if isinstance(given, Exception) else given.__name__,
)
def test_files_read_in_python(raised: Exception, expected: type[Exception]) -> None:
    """Errors under PyIceberg are ours, also raised from others: a try later, or a stop that tells no value."""
    wrapped = RuntimeError("read failed")
    wrapped.__cause__ = raised
    for each in (raised, wrapped) if not isinstance(raised, FileNotFoundError | ConnectorError) else (raised,):
        with (
            pytest.raises(expected, match=r"db\.t") as caught,
            file_io.map_read_errors("reading the manifests of db.t"),
        ):
            raise each
        assert "secret" not in str(caught.value)


def test_failures_while_reading() -> None:
    """A lost file and a broken one are fatal and named; a store that is away may be tried again."""
    gone = "Job aborted\nCaused by: java.io.FileNotFoundException: File file:/w/db/t/data/1-a.parquet does not exist\n"
    broken = (
        "x\nCaused by: java.lang.RuntimeException: file:/w/2.parquet is not a Parquet file. Expected magic number\n"
    )
    away = "x\nCaused by: java.net.ConnectException: Connection refused\n"
    assert isinstance(_translate(gone, "table t, snapshot 5"), FatalError)
    assert "file:/w/db/t/data/1-a.parquet is gone" in str(_translate(gone, "table t, snapshot 5"))
    assert "table t, snapshot 5" in str(_translate(broken, "table t, snapshot 5"))
    assert "2.parquet cannot be read" in str(_translate(broken, "table t, snapshot 5"))
    assert isinstance(_translate(away, "table t, snapshot 5"), RetriableError)
