"""Deleted keys of a batch's documents -> the table of deleted keys, before anything counts on it. On the driver."""

from __future__ import annotations

import structlog

from connector.errors import CommitRefused, ConnectorError
from connector.iceberg.state.deleted_keys_table import DeletedKeysTable
from connector.sink.model.result import JobResult


def remember_deleted_keys(deleted_keys: DeletedKeysTable | None, result: JobResult) -> None:
    """Note hard deletes before the batch is acknowledged: after a crash they come again. A second call does nothing.

    Raises:
        CommitRefused, CommitUnknown, RetriableError: as `DeletedKeysTable.add`; refused files are deleted.
    """
    if not result.deleted_key_files or deleted_keys is None:
        return
    try:
        deleted_keys.add(result.deleted_key_files)
    except CommitRefused:
        discard_deleted_keys(deleted_keys, result)
        raise
    result.deleted_key_files = []


def discard_deleted_keys(deleted_keys: DeletedKeysTable | None, result: JobResult) -> None:
    """Delete files of deleted keys that no commit will refer to."""
    if deleted_keys is None:
        return
    # What cannot be deleted is an orphan, and harmless.
    for path in dict.fromkeys(file.path for file in result.deleted_key_files):
        try:
            deleted_keys.delete_file(path)
        except ConnectorError as error:
            structlog.get_logger().warning("a file is left behind", reason=str(error))
