"""Tables whose columns, keys, partitions and rows change many times between two polls -> the rows of each snapshot.

The rows are known by a copy in plain Python that no reader has a part in: values by field id, changed as the statements
say. ICEBRIDGE_HISTORIES (1) is how many histories each test runs, ICEBRIDGE_STEPS (12, in `make test` 6) how many
statements each has, ICEBRIDGE_SEED (0) where they start.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import attrs
import pytest
from pyspark.sql import SparkSession

from connector.source.changes.rewrites import file_diff
from connector.source.snapshots.next_step import SnapshotOffset, StreamChanges
from tests.harness.rounds import THOROUGH, seeded
from tests.harness.tiers import tiered
from tests.histories.source_tables import COW, MOR, Kind, Plain, Subject, plain, use_catalog

pytestmark = pytest.mark.spark
HISTORIES = int(os.environ.get("ICEBRIDGE_HISTORIES", "1"))
SEED = seeded()
STEPS = int(os.environ.get("ICEBRIDGE_STEPS", "12" if THOROUGH else "6"))
COLUMNS = "id int NOT NULL, k int NOT NULL, p string, v string, n int, f float, s struct<a: int, b: string>"
WIDER = {"int": "bigint", "float": "double"}
KINDS = [Kind(version, mode, partitioned=False, identifiers=True) for version in (2, 3) for mode in (COW, MOR)]
IDS = 12
ADDED_DEFAULT: Mapping[str, Any] = {"int": 7, "string": "then"}

Values = dict[int, Any]


@pytest.fixture(scope="module")
def session(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> SparkSession:
    """The session with a catalog for these tests."""
    use_catalog(spark, tmp_path_factory.mktemp("late"))
    return spark


@attrs.frozen
class Column:
    """A column of the copy, or a field of its struct; `default` is what rows have that are older than it."""

    field_id: int
    name: str
    kind: str
    default: Any = None
    fields: tuple[Column, ...] = ()

    @property
    def type(self) -> str:
        """The type as Spark writes it."""
        if self.kind != "struct":
            return self.kind
        return f"struct<{', '.join(f'`{one.name}`: {one.type}' for one in self.fields)}>"

    def plain_of(self, values: Values) -> Plain:
        """What a row, or a struct, has in it."""
        value = values.get(self.field_id, self.default)
        return tuple(one.plain_of(value) for one in self.fields) if isinstance(value, dict) else plain(value)

    def named(self, value: Any) -> Any:
        """A value with the names of its fields."""
        return {one.name: one.named(value[one.field_id]) for one in self.fields} if isinstance(value, dict) else value

    def literal(self, value: Any) -> str:
        """A value in SQL."""
        if isinstance(value, dict):
            text = ", ".join(f"'{one.name}', {one.literal(value[one.field_id])}" for one in self.fields)
            return f"named_struct({text})"
        text = "NULL" if value is None else f"'{value}'" if isinstance(value, str) else f"{value}"
        return f"CAST({text} AS {self.type})"


@attrs.define
class Copy:
    """The rows by their ids, and each snapshot's columns and rows."""

    columns: list[Column]
    rows: dict[int, Values] = attrs.field(factory=dict)
    snapshots: dict[int, tuple[tuple[Column, ...], Counter[Plain]]] = attrs.field(factory=dict)

    def place(self, name: str) -> int:
        """The field id of a column."""
        return next(column.field_id for column in self.columns if column.name == name)

    def note(self, snapshot_id: int) -> None:
        """Keep what a snapshot has."""
        rows = Counter(tuple(column.plain_of(row) for column in self.columns) for row in self.rows.values())
        self.snapshots.setdefault(snapshot_id, (tuple(self.columns), rows))


class History:
    """Random statements on a table, and the same on its copy."""

    def __init__(self, subject: Subject, seed: int) -> None:
        self.subject, self.random = subject, Random(seed)
        self.told: list[str] = []
        self.id_name, self.identified = "id", True
        self.copy = Copy([])
        self.published: tuple[tuple[Column, ...], Counter[Plain]] = ((), Counter())
        self._learn_columns({})

    def step(self) -> None:
        """One random statement, changes of rows more often than others."""
        rows: list[Callable[[], None]] = [self.insert, self.update, self.update, self.delete, self.delete, self.merge]
        rows += [self.upsert, self.upsert] if self.identified else []
        others = [
            self.add,
            self.drop,
            self.rename,
            self.widen,
            self.respec,
            self.reidentify,
            self.compact,
            self.replace,
            self.change_struct,
            self.change_struct,
        ]
        self.random.choice(rows if self.random.random() < 0.6 else others)()
        if (newest := self.subject.table().snapshot_id) is not None:
            self.copy.note(newest)

    def insert(self) -> None:
        """New rows; all in one file, or one in each."""
        new = {number: self._row(number) for number in self._numbers(3) - self.copy.rows.keys()}
        if new:
            hint = self.random.choice(["/*+ COALESCE(1) */ ", ""])
            rows = ", ".join(f"({', '.join(self._literals(row))})" for row in new.values())
            self._do(f"INSERT INTO {{t}} SELECT {hint}* FROM VALUES {rows}")
            self.copy.rows |= new

    def update(self) -> None:
        """Another value in a column of some rows; maybe the one that they have."""
        column, numbers = self._free_column(), self._numbers(4)
        value = self._value(column)
        self._do(f"UPDATE {{t}} SET `{column.name}` = {column.literal(value)} WHERE {self._among(numbers)}")
        for number in numbers & self.copy.rows.keys():
            self.copy.rows[number][column.field_id] = value

    def delete(self) -> None:
        """Some rows go."""
        numbers = self._numbers(2)
        self._do(f"DELETE FROM {{t}} WHERE {self._among(numbers)}")
        for number in numbers:
            self.copy.rows.pop(number, None)

    def merge(self) -> None:
        """Some rows go, some change."""
        numbers, column = self._numbers(5), self._free_column()
        value = self._value(column)
        source = ", ".join(f"({number})" for number in sorted(numbers))
        self._do(
            f"MERGE INTO {{t}} t USING (SELECT * FROM VALUES {source} AS src(x)) src ON t.`{self.id_name}` = src.x "
            "WHEN MATCHED AND src.x % 3 = 0 THEN DELETE "
            f"WHEN MATCHED THEN UPDATE SET `{column.name}` = {column.literal(value)}"
        )
        for number in numbers & self.copy.rows.keys():
            if number % 3 == 0:
                del self.copy.rows[number]
            else:
                self.copy.rows[number][column.field_id] = value

    def upsert(self) -> None:
        """Global equality deletes and rows, as the sink writes them."""
        changed = {number: self._row(number) for number in self._numbers(3)}
        gone = self._numbers(2) - changed.keys()
        self.told.append(f"upsert {sorted(changed)}, delete {sorted(gone)}")
        keys = [{self.id_name: number, "k": number * 10} for number in gone]
        named = {column.field_id: column for column in self.copy.columns}
        rows = [{named[at].name: named[at].named(value) for at, value in row.items()} for row in changed.values()]
        self.subject.upsert(rows, keys)
        for number in gone:
            self.copy.rows.pop(number, None)
        self.copy.rows |= changed

    def add(self) -> None:
        """A column; its name may have been another's before, and its older rows have a default in v3."""
        free = [name for name in ("x", "y", "v", "n") if name not in {one.name for one in self.copy.columns}]
        if not free:
            return
        self._add(self.random.choice(free))

    def _add(self, name: str, parent: str | None = None) -> None:
        kind, path = self.random.choice(["int", "string"]), name if parent is None else f"{parent}.{name}"
        default = ADDED_DEFAULT[kind] if self.subject.kind.version > 2 and self.random.random() < 0.7 else None
        self.told.append(f"add {path} {kind} default {default}")
        iceberg: Any = self.subject.spark._jvm.org.apache.iceberg
        made = {"int": iceberg.types.Types.IntegerType.get(), "string": iceberg.types.Types.StringType.get()}[kind]
        place = [name] if parent is None else [parent, name]
        literal = [] if default is None else [iceberg.expressions.Literal.of(default).to(made)]
        self.subject.table().java.updateSchema().addColumn(*place, made, *literal).commit()
        self._learn_columns({path: default})

    def change_struct(self) -> None:
        """A field of the struct comes, goes, gets another name, which may have been another's, or a wider type."""
        (struct,) = (column for column in self.copy.columns if column.fields)
        taken = {field.name for field in struct.fields}
        free, field = sorted({"a", "b", "c"} - taken), self.random.choice(struct.fields)
        match self.random.randrange(4):
            case 0 if free:
                self._add(self.random.choice(free), struct.name)
            case 1 if len(struct.fields) > 1:
                self._do(f"ALTER TABLE {{t}} DROP COLUMN {struct.name}.{field.name}")
            case 2 if free:
                self._do(f"ALTER TABLE {{t}} RENAME COLUMN {struct.name}.{field.name} TO {free[0]}")
            case 3 if field.kind in WIDER:
                self._do(f"ALTER TABLE {{t}} ALTER COLUMN {struct.name}.{field.name} TYPE {WIDER[field.kind]}")
        self._learn_columns({})

    def drop(self) -> None:
        """A column goes that no key and no partition needs."""
        free = [one.name for one in self.copy.columns if one.name in {"x", "y", "v", "n"}]
        if len(free) > 1 and (name := self.random.choice(free)):
            if any(field.name() == name for field in self.subject.table().java.spec().fields()):
                return
            self._do(f"ALTER TABLE {{t}} DROP COLUMN {name}")
            self._learn_columns({})

    def rename(self) -> None:
        """A column takes another name: the key, or one whose old name others may take."""
        taken = {one.name for one in self.copy.columns}
        names = [(self.id_name, "ident" if self.id_name == "id" else "id"), ("v", "y"), ("x", "v"), ("n", "x")]
        possible = [(old, new) for old, new in names if old in taken and new not in taken]
        if possible:
            old, new = self.random.choice(possible)
            self._do(f"ALTER TABLE {{t}} RENAME COLUMN {old} TO {new}")
            self.id_name = new if old == self.id_name else self.id_name
            self._learn_columns({})

    def widen(self) -> None:
        """A type is promoted, that of the key too."""
        possible = [column for column in self.copy.columns if column.kind in WIDER]
        if possible:
            column = self.random.choice(possible)
            self._do(f"ALTER TABLE {{t}} ALTER COLUMN `{column.name}` TYPE {WIDER[column.kind]}")
            self._learn_columns({})

    def respec(self) -> None:
        """Another partitioning, or none."""
        java = self.subject.table().java
        expressions: Any = self.subject.spark._jvm.org.apache.iceberg.expressions.Expressions
        update, names = java.updateSpec(), {field.name() for field in java.spec().fields()}
        if names:
            for name in names:
                update.removeField(name)
        else:
            term = self.random.choice([expressions.ref("p"), expressions.bucket(self.id_name, 3)])
            update.addField(term)
        self.told.append(f"partitions {'none' if names else term.toString()}")
        update.commit()

    def reidentify(self) -> None:
        """Other identifier columns, or none."""
        names = self.random.choice([[self.id_name], [self.id_name, "k"], ["k"], []])
        self.told.append(f"identifiers {names}")
        self.subject.table().java.updateSchema().setIdentifierFields(names).commit()
        self.identified = bool(names)

    def compact(self) -> None:
        """All files are written anew, with the same rows."""
        self.told.append("compact")
        self.subject.call("rewrite_data_files", ", options => map('rewrite-all', 'true')")

    def replace(self) -> None:
        """The table is overwritten with some of its own rows."""
        self._do(f"INSERT OVERWRITE {{t}} SELECT * FROM {{t}} WHERE `{self.id_name}` % 2 = 0")
        self.copy.rows = {number: row for number, row in self.copy.rows.items() if number % 2 == 0}

    def poll(self) -> None:
        """Take over every snapshot since the last poll, and compare after each."""
        subject = self.subject
        while (step := subject.next()) is not None:
            snapshot_id = step.snapshot.snapshot_id
            columns, rows = self.copy.snapshots[snapshot_id]
            was, before = self.published
            subject.copy = Counter()
            for row, count in before.items():
                subject.copy[_as_columns(was, columns, row)] += count
            found = subject.events(snapshot_id) if isinstance(step, StreamChanges) else []
            kind = subject.keys(subject.table(), snapshot_id).kind
            subject.apply(found, kind)
            assert subject.copy == rows, f"after {step} with {found}, before {before}"
            self.published = columns, rows
            subject.position = SnapshotOffset(subject.position.table_uuid, snapshot_id)

    def _learn_columns(self, defaults: Mapping[str, Any]) -> None:
        """Take the columns of the table as they are now; the rows keep what they have by field id."""
        known = {column.field_id: column for column in self.copy.columns}
        known |= {field.field_id: field for column in self.copy.columns for field in column.fields}

        def learn(field: Any, path: str) -> Column:
            fields = field.type().fields() if field.type().isStructType() else ()
            kind = "struct" if fields else {"long": "bigint"}.get(str(field.type()), str(field.type()))
            old = known.get(field.fieldId(), Column(field.fieldId(), "", "", defaults.get(path)))
            inner = tuple(learn(one, f"{path}.{one.name()}") for one in fields)
            return attrs.evolve(old, name=field.name(), kind=kind, fields=inner)

        self.copy.columns = [learn(field, field.name()) for field in self.subject.table().java.schema().columns()]

    def _do(self, statement: str) -> None:
        self.told.append(statement)
        self.subject.sql(statement)

    def _row(self, number: int) -> Values:
        own = {self.id_name: number, "k": number * 10}
        return {one.field_id: own[one.name] if one.name in own else self._value(one) for one in self.copy.columns}

    def _free_column(self) -> Column:
        return self.random.choice([one for one in self.copy.columns if one.name not in {self.id_name, "k"}])

    def _value(self, column: Column) -> Any:
        if self.random.random() < 0.2:
            return None
        if column.fields:
            return {field.field_id: self._value(field) for field in column.fields}
        number = self.random.randrange(3)
        return {"string": "abc"[number], "float": number / 2, "double": number / 2}.get(column.kind, number)

    def _literals(self, row: Values) -> list[str]:
        return [column.literal(row[column.field_id]) for column in self.copy.columns]

    def _among(self, numbers: set[int]) -> str:
        return f"`{self.id_name}` IN ({', '.join(map(str, sorted(numbers)))})"

    def _numbers(self, most: int) -> set[int]:
        return {self.random.randrange(IDS) for _ in range(self.random.randint(1, most))}


def _as_columns(was: tuple[Column, ...], now: tuple[Column, ...], values: Plain) -> Plain:
    """A row, or struct, of a snapshot under the columns of a later one: by field id, defaults where there was none."""
    places = {column.field_id: place for place, column in enumerate(was)}
    found = []
    for column in now:
        place = places.get(column.field_id)
        value = plain(column.default) if place is None else values[place]
        if place is not None and column.fields and value is not None:
            value = _as_columns(was[place].fields, column.fields, value)
        found.append(value)
    return tuple(found)


CASES = [(kind, walked) for kind in KINDS for walked in (True, False)]


@pytest.mark.parametrize(
    ("kind", "walked"), tiered(CASES, CASES[-1:], lambda case: f"{case[0]}-{'walked' if case[1] else 'by digests'}")
)
def test_everything_changes_between_two_polls(
    session: SparkSession, kind: Kind, walked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However far behind a source is, the changes of each snapshot are those between its rows, under its columns."""
    monkeypatch.setattr(file_diff, "MIN_REWRITTEN_ROWS", 0 if walked else 1 << 60)
    for number in range(HISTORIES):
        history = History(Subject(session, kind, COLUMNS), SEED + number + (1000 if walked else 0))
        try:
            history.insert()
            history.copy.note(history.subject.table().snapshot_id or 0)
            for _ in range(STEPS):
                history.step()
                if history.random.random() < 0.2:
                    history.poll()
            history.poll()
            assert history.subject.position.snapshot_id == history.subject.table().snapshot_id
        except Exception as error:
            raise AssertionError(f"{kind}, seed {SEED + number}: {'; '.join(history.told)}") from error
