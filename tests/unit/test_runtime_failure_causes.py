"""Chains of exceptions -> whether a retry may help: what stores, databases and class loaders say when they fail."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from connector.errors import FatalError, RetriableError
from connector.runtime.failure_causes import Cause, is_permanent, is_transient
from connector.runtime.spark.task_errors import raise_task_errors
from connector.source.changes.read_errors import translate_read_errors

FOR_GOOD = {
    "no jar": [
        ("RuntimeIOException", "Failed to get file system for path: s3://b/w"),
        ("UnsupportedFileSystemException", 'No FileSystem for scheme "s3"'),
    ],
    "no driver": [("UncheckedSQLException", "Cannot connect"), ("SQLException", "No suitable driver found for jdbc:x")],
    "no bucket": [("NoSuchBucketException", "The specified bucket does not exist (Service: S3, Status Code: 404)")],
    "denied": [("UncheckedIOException", "x"), ("S3Exception", "Access Denied (Service: S3, Status Code: 403, ID: 1)")],
    "no credentials": [("SdkClientException", "Unable to load credentials from any of the providers in the chain")],
    "database's password": [
        ("UncheckedSQLException", "Cannot initialize JDBC catalog"),
        ("PSQLException", "Passwort-Authentifizierung fehlgeschlagen (SQLSTATE 28P01)"),
    ],
    "no database": [("SQLSyntaxErrorException", "Unknown database 'lake'")],
    "Arrow, denied": [("OSError", "When reading 'f': AWS Error ACCESS_DENIED during HeadObject operation: x")],
    "Arrow, no bucket": [("OSError", "AWS Error NO_SUCH_BUCKET during CreateMultipartUpload operation: x")],
    "rights of a folder": [("RuntimeIOException", "x"), ("FileNotFoundException", "/w/metadata (Permission denied)")],
}
PASSING = {
    "store away": [
        ("SdkClientException", "Unable to execute HTTP request: Connect to h:9000 failed"),
        ("HttpHostConnectException", "Connection refused"),
    ],
    "store busy": [("S3Exception", "Please reduce your request rate. (Service: S3, Status Code: 503, Request ID: 1)")],
    "Arrow, away": [("OSError", "AWS Error NETWORK_CONNECTION during HeadObject operation: curlCode: 7")],
    "name unknown yet": [("UncheckedSQLException", "x"), ("UnknownHostException", "db")],
    "token out of date": [("S3Exception", "The provided token has expired. (Service: S3, Status Code: 400)")],
    "token out of date, refused": [("S3Exception", "ExpiredToken (Service: S3, Status Code: 403)")],
}


def _causes(chain: list[tuple[str, str]]) -> list[Cause]:
    return [Cause(name, message) for name, message in chain]


@pytest.mark.parametrize("what", FOR_GOOD)
def test_some_failures_last(what: str) -> None:
    """What is missing, denied or unknown for good is not tried again, wherever in the chain it is said."""
    assert is_permanent(_causes(FOR_GOOD[what]))
    assert not is_transient(_causes(FOR_GOOD[what]))


@pytest.mark.parametrize("what", PASSING)
def test_some_failures_pass(what: str) -> None:
    """A store or database that is away or busy is tried again."""
    assert is_transient(_causes(PASSING[what]))
    assert not is_permanent(_causes(PASSING[what]))


def test_other_failures_are_for_their_callers_to_judge() -> None:
    """Conflicts and failures without a story are neither."""
    for name, message in (("CommitFailedException", "metadata has changed"), ("RuntimeIOException", "Failed to read")):
        assert not is_permanent([Cause(name, message)])
        assert not is_transient([Cause(name, message)])


_REPORT = """An error occurred while calling o1.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 failed 1 times: {}
\tat org.apache.iceberg.parquet.ParquetReader.open(ParquetReader.java:1)
  File "/w/connector/iceberg/write/rolling_file.py", line 1, in flush
{}
"""


@pytest.mark.parametrize(
    ("told", "kind"),
    [
        ("OSError: When initiating multiple part upload: AWS Error NETWORK_CONNECTION: curlCode: 7", RetriableError),
        ("OSError: When reading 'f': AWS Error ACCESS_DENIED during HeadObject operation", FatalError),
        ("OSError: AWS Error NO_SUCH_BUCKET during CreateMultipartUpload operation", FatalError),
        ("PermissionError: [Errno 13] Permission denied: '/w/data/f.parquet'", FatalError),
        ("Caused by: java.net.SocketTimeoutException: Read timed out", RetriableError),
    ],
)
def test_a_store_within_a_task_is_told_apart(told: str, kind: type[Exception]) -> None:
    """What a store says within a task, of the sink or under the source's frame, is tried again or ends the run."""
    report = _REPORT.format("x", told)
    with pytest.raises(kind), raise_task_errors():
        raise PySparkException(report)
    with pytest.raises(kind, match=r"^table a\.t, snapshot 5: "), translate_read_errors("a.t", 5):
        raise PySparkException(report)


def test_other_failures_of_tasks_go_through() -> None:
    """A fault of the program is no store's."""
    with pytest.raises(PySparkException), raise_task_errors():
        raise PySparkException(_REPORT.format("x", "ValueError: 3 is no size"))
