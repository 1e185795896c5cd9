"""Chains of exceptions -> whether a retry may help: what stores, databases and class loaders say when they fail."""

from __future__ import annotations

import pytest

from connector.iceberg.causes import Cause, is_for_good, is_passing

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
    assert is_for_good(_causes(FOR_GOOD[what]))
    assert not is_passing(_causes(FOR_GOOD[what]))


@pytest.mark.parametrize("what", PASSING)
def test_some_failures_pass(what: str) -> None:
    """A store or database that is away or busy is tried again."""
    assert is_passing(_causes(PASSING[what]))
    assert not is_for_good(_causes(PASSING[what]))


def test_other_failures_are_for_their_callers_to_judge() -> None:
    """Conflicts and failures without a story are neither."""
    for name, message in (("CommitFailedException", "metadata has changed"), ("RuntimeIOException", "Failed to read")):
        assert not is_for_good([Cause(name, message)])
        assert not is_passing([Cause(name, message)])
