"""A truncate at the source -> the table without its rows up to then, in a commit of its own. On the driver.

Whole files go by metadata alone; only where a file also holds later rows does Spark rewrite it. Done twice it changes
nothing, so that a crash before the batch's own commit does no harm.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession

from connector.errors import CommitRefused, ConnectorError, FatalError, RetriableError
from connector.iceberg.catalog.table import Table
from connector.iceberg.commit.commit_attempts import Ancestors, commit_exactly_once
from connector.iceberg.commit.commit_summary import CONNECTOR_NAME, CREATED_BY
from connector.iceberg.commit.settlement import SnapshotChange, settle_commits
from connector.iceberg.java import JavaTable, activate_session, is_transient_java_error, java_exception_name, jvm
from connector.settings.iceberg.write_mode import MAIN_BRANCH

_SESSION_LOCK = threading.Lock()


def truncate_table(
    spark: SparkSession,
    table: Table,
    until: tuple[str, int] | None,
    own: Sequence[tuple[str, str]] = (),
    *,
    name: str,
    rule: Callable[[Ancestors], bool] | None = None,
) -> None:
    """Delete every row, or those whose column (a number) is not above a value.

    Args:
        spark: the session with the catalog.
        table: the table; its Java object is up to date afterwards.
        until: the column that orders rows and the truncate's value of it, None when the table has none.
        own: text columns and their values, which the rows have; empty for rows of any.
        name: the connector's, for the snapshot's summary.
        rule: whether the snapshots found let it in, as of `commit_exactly_once`; where rows go by Spark, it is asked
            of what came before Spark looks, and nothing of this connector's may come behind that.

    Raises:
        CommitRefused: the rule does not let it in.
        RetriableError: the catalog or store stayed away, or another writer was faster.
        CommitUnknown: nobody could tell until `errors.retry.timeout`.
        FatalError: a file holds rows that stay too, and Spark cannot read the table (a `time` column).
    """
    table.refresh()
    if table.snapshot_id is None:
        return
    expressions = jvm(spark).org.apache.iceberg.expressions.Expressions
    try:
        commit_exactly_once(
            table, uuid.uuid4().hex, lambda: _start_delete(table, _row_filter(expressions, until, own), name), rule
        )
    except CommitRefused as error:
        if java_exception_name(error) != "ValidationException" or (until is None and not own):
            raise
        if rule is not None and not rule(table.java_ancestors()):
            raise
        with _tag_session_commits(spark, name):
            _delete_rows_with_spark(spark, table, until, own, name)
    table.refresh()


def _start_delete(table: Table, rows: Any, name: str) -> Any:
    return table.java.newDelete().toBranch(table.branch).set(CREATED_BY, name).deleteFromRowFilter(rows)


def _row_filter(expressions: Any, until: tuple[str, int] | None, own: Sequence[tuple[str, str]]) -> Any:
    both, either, row_filter = getattr(expressions, "and"), getattr(expressions, "or"), expressions.alwaysTrue()
    if until is not None:
        row_filter = either(expressions.lessThanOrEqual(*until), expressions.isNull(until[0]))
    for column, value in own:
        row_filter = both(row_filter, expressions.equal(column, value))
    return row_filter


@contextmanager
def _tag_session_commits(spark: SparkSession, name: str) -> Iterator[None]:
    """Let the session's commits have the connector's name; those of others meanwhile have it too, and are its own."""
    key = f"spark.sql.iceberg.snapshot-property.{CREATED_BY}"
    with _SESSION_LOCK:
        spark.conf.set(key, name)
        try:
            yield
        finally:
            spark.conf.unset(key)


def _delete_rows_with_spark(
    spark: SparkSession, table: Table, until: tuple[str, int] | None, own: Sequence[tuple[str, str]], name: str
) -> None:
    def accepts(_: SnapshotChange, later: Sequence[SnapshotChange]) -> bool:
        return not any(one.summary.get(CONNECTOR_NAME) == name for one in later)

    terms = [] if until is None else [f"({_quote(until[0])} IS NULL OR {_quote(until[0])} <= {int(until[1])})"]
    terms += [f"{_quote(column)} = {_text_literal(value)}" for column, value in own]
    try:
        with settle_commits(table, f"emptying table {table.name} by rows", accepts) as java:
            _run_spark_delete(spark, java, table.branch, " AND ".join(terms))
    except ConnectorError:
        raise
    except Exception as error:
        if is_transient_java_error(error):
            # It is not in the table: done again it deletes what is there by then.
            raise RetriableError(f"emptying table {table.name} by rows: {error}") from error
        raise FatalError(
            f"table {table.name}: a truncate has to delete rows among others, and Spark cannot "
            f"({type(error).__name__}); delete them by hand and start again"
        ) from error


def _run_spark_delete(spark: SparkSession, java: JavaTable, branch: str, where: str) -> None:
    """Run a DELETE on this very table; in SQL it could be named only, and Spark would load one of its own."""
    session, java_vm = spark._jsparkSession, jvm(spark)  # noqa: SLF001 - plans are made in Java
    nothing, sql = java_vm.scala.Option.empty(), java_vm.org.apache.spark.sql
    activate_session(spark)
    target = java_vm.org.apache.iceberg.spark.source.SparkTable(java)
    if branch != MAIN_BRANCH:
        target = target.copyWithBranch(branch)
    relation = sql.execution.datasources.v2.DataSourceV2Relation.create(target, nothing, nothing)
    condition = session.sessionState().sqlParser().parseExpression(where)
    sql.classic.Dataset.ofRows(session, sql.catalyst.plans.logical.DeleteFromTable(relation, condition))


def _quote(column: str) -> str:
    return f"`{column.replace('`', '``')}`"


def _text_literal(value: str) -> str:
    return f"CAST(X'{value.encode().hex()}' AS STRING)"
