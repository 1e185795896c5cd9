"""Chains of exceptions -> whether a retry may help: what stores, databases and class loaders say when they fail."""

from __future__ import annotations

import ssl
from urllib.error import URLError

import pytest
from pyspark.errors import PySparkException

from connector.errors import FatalError, RetriableError
from connector.kafka.registry.unanswered import unanswered_error
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
        ("FileNotFoundError: [Errno 2] Failed to open local file '/w/data/f.parquet'", FatalError),
        ("OSError: AWS Error NO_SUCH_KEY during GetObject operation", FatalError),
        ("Caused by: org.apache.iceberg.exceptions.NotFoundException: File does not exist: /w/f.parquet", FatalError),
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


_CHAIN_REPORT = """An error occurred while calling o1.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times: {}
\tat org.apache.iceberg.parquet.ParquetReader.open(ParquetReader.java:1)
Caused by: {}
\t... 10 more
"""
_PYTHON_REPORT = """An error occurred while calling o1.collectToPython.
: org.apache.spark.SparkException: Job aborted: org.apache.spark.api.python.PythonException: Traceback:
  File "/w/connector/iceberg/write/rolling_file.py", line 1, in flush
{}

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:1)
"""
_MORE_PASSING = [
    "java.util.concurrent.TimeoutException: Did not observe any item or terminal signal within 60000ms",
    "java.io.IOException: Broken pipe",
    "java.net.SocketTimeoutException",
    "com.google.api.client.googleapis.json.GoogleJsonResponseException: 503 Service Unavailable",
    "com.google.cloud.storage.StorageException: 429 Too Many Requests",
    "com.azure.storage.blob.models.BlobStorageException: Status code 503, ServerBusy",
    "java.io.FileNotFoundException: /w/data/f.parquet (Too many open files)",
    "java.io.FileNotFoundException: /w/data/f.parquet (Stale file handle)",
    "java.io.FileNotFoundException: /w/data/f.parquet (Input/output error)",
    "org.apache.hadoop.ipc.RemoteException(org.apache.hadoop.ipc.StandbyException): READ is not there in state standby",
    "org.apache.hadoop.hdfs.BlockMissingException: Could not obtain block: BP-1:blk_1 file=/w/f.parquet",
    "javax.net.ssl.SSLException: Connection reset",
    "software.amazon.awssdk.core.exception.SdkClientException: Data read has a different checksum than expected",
    "software.amazon.awssdk.services.s3.model.S3Exception: null (Service: S3, Status Code: 503, Request ID: 40312)",
    "OSError: google::cloud::Status(UNAVAILABLE: Retry policy exhausted)",
    "OSError: google::cloud::Status(DEADLINE_EXCEEDED: too long)",
    "OSError: [Errno 28] Error writing bytes to file. Detail: [errno 28] No space left on device",
    "OSError: [Errno 116] Stale file handle: '/w/f'",
    "OSError: [Errno 5] Input/output error",
    "BrokenPipeError: [Errno 32] Broken pipe",
    "TimeoutError",
    "asyncio.exceptions.TimeoutError",
    "botocore.exceptions.ClientError: An error occurred (SlowDown) when calling the PutObject operation: Please reduce",
    "OSError: AWS Error UNKNOWN (HTTP status 502) during CompleteMultipartUpload operation: No response body.",
    "OSError: GetProperties for 'https://a.blob/x' failed. Azure Error: [ServerBusy] 503 The server is busy.",
    "OSError: PutBlob failed. Azure Error: [OperationTimedOut] Operation could not be completed",
    "OSError: Fail to get a new connection for: https://a.blob.core.windows.net. Couldn't resolve host name",
]
_MORE_FOR_GOOD = [
    "javax.net.ssl.SSLPeerUnverifiedException: Certificate for <h> doesn't match any of the alternative names: [x]",
    "javax.net.ssl.SSLException: Unsupported or unrecognized SSL message",
    "java.sql.SQLNonTransientConnectionException: Public Key Retrieval is not allowed (SQLSTATE 08001)",
    "org.sqlite.SQLiteException: [SQLITE_READONLY] Attempt to write a readonly database",
    "org.sqlite.SQLiteException: [SQLITE_NOTADB] File opened that is not a database file",
    "a.DynamoDbException: User: x is not authorized to perform: dynamodb:Query (Service: DynamoDb, Status Code: 400)",
    "OSError: google::cloud::Status(PERMISSION_DENIED: caller does not have storage.objects.create access)",
    "OSError: google::cloud::Status(UNAUTHENTICATED: Permanent error)",
    "OSError: Azure Error: [AuthorizationPermissionMismatch] 403 This request is not authorized",
    "OSError: [Errno 30] Read-only file system: '/w/f'",
]


def test_registries_behind_what_no_retry_mends() -> None:
    """A certificate that nobody vouches for, or a file of keys that is not there, is no registry that is away."""
    unverified = ssl.SSLCertVerificationError(1, "[SSL: CERTIFICATE_VERIFY_FAILED] self-signed certificate (_ssl.c:1)")
    for error in (URLError(unverified), FileNotFoundError(2, "No such file", "ca.pem")):
        assert isinstance(unanswered_error("asking", error), FatalError)
    for error in (URLError(ConnectionRefusedError(111, "refused")), TimeoutError(), ssl.SSLEOFError(8, "EOF occurred")):
        assert isinstance(unanswered_error("asking", error), RetriableError)


@pytest.mark.parametrize("python", [False, True])
@pytest.mark.parametrize(
    ("said", "kind"),
    [(_MORE_PASSING, RetriableError), (_MORE_FOR_GOOD, FatalError)],
    ids=["passing", "for good"],
)
def test_what_stores_databases_and_systems_say(said: list[str], kind: type[Exception], python: bool) -> None:
    """Each is told apart at the bottom of a report of Java's or Python's, in a task of the sink, under the source's
    frame, and as a chain of causes on the driver; none counts as a file that is gone."""
    for text in said:
        report = (
            _PYTHON_REPORT.format(text) if python else _CHAIN_REPORT.format("java.io.UncheckedIOException: x", text)
        )
        with pytest.raises(kind, match=r"^a task failed: "), raise_task_errors():
            raise PySparkException(report)
        with pytest.raises(kind, match=r"^table a\.t, snapshot 5: (?!file)"), translate_read_errors("a.t", 5):
            raise PySparkException(report)
        name, _, message = text.partition(": ")
        chain = [Cause("RuntimeIOException", "x"), Cause(name.rsplit(".", 1)[-1], message)]
        assert (is_transient(chain), is_permanent(chain)) == (kind is RetriableError, kind is FatalError), text
