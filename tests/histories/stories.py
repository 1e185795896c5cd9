"""A seed -> a random history of a table: SQL that changes rows, files, columns or partitions."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from tests.histories.source_tables import Subject

FLAT = "id bigint NOT NULL, p string, v string, d double"
NESTED = FLAT + ", m map<string, int>, s struct<a: int, b: array<string>>"


class Story:
    """A random history of one table: statements drawn from a seed."""

    def __init__(self, subject: Subject, seed: int) -> None:
        self.subject, self.random = subject, Random(seed)
        self.columns = 0
        self.settle: Callable[[], Any] = subject.follow
        self.told: list[str] = []

    def begin(self) -> None:
        """Some rows to start with."""
        self._do(f"INSERT INTO {{t}} VALUES {self._values(8)}")

    def step(self) -> None:
        """One random change, some of which change nothing."""
        often = [self.update, self.delete, self.merge] * 2
        self.random.choice(
            (*often, self.insert, self.move, self.rekey, self.drop_partition, self.compact, self.overwrite)
        )()
        if self.random.random() < 0.3:
            self.random.choice((self.evolve, self.respec))()

    def insert(self) -> None:
        self._do(f"INSERT INTO {{t}} VALUES {self._values(3)}")

    def update(self) -> None:
        self._do(f"UPDATE {{t}} SET v = '{self._word()}', d = {self._number()} WHERE id IN ({self._ids()})")

    def move(self) -> None:
        self._do(f"UPDATE {{t}} SET p = {self._part()} WHERE id IN ({self._ids()})")

    def rekey(self) -> None:
        self._do(f"UPDATE {{t}} SET id = id + 20 WHERE id IN ({self._ids()})")

    def delete(self) -> None:
        self._do(f"DELETE FROM {{t}} WHERE id IN ({self._ids()})")

    def drop_partition(self) -> None:
        self._do(f"DELETE FROM {{t}} WHERE p <=> {self._part()}")

    def merge(self) -> None:
        self._do(
            f"MERGE INTO {{t}} t USING (SELECT id, '{self._word()}' v FROM VALUES "
            + ", ".join(f"({i})" for i in sorted({self.random.randrange(14) for _ in range(4)}))
            + " AS s(id)) s ON t.id = s.id WHEN MATCHED AND t.id % 3 = 0 THEN DELETE"
            " WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT (id, p, v) VALUES (s.id, 'a', s.v)"
        )

    def overwrite(self) -> None:
        self._do(f"INSERT OVERWRITE {{t}} SELECT * FROM {{t}} WHERE id % 2 = {self.random.randrange(2)}")

    def compact(self) -> None:
        self.told.append("compact")
        self.subject.call("rewrite_data_files", ", options => map('rewrite-all', 'true')")

    def evolve(self) -> None:
        self.settle()
        self.columns += 1
        self._do(f"ALTER TABLE {{t}} ADD COLUMN x{self.columns} int")
        if self.columns == 2:
            self._do("ALTER TABLE {t} RENAME COLUMN x1 TO y1")
            self._do("ALTER TABLE {t} ALTER COLUMN x2 TYPE bigint")
        if self.columns == 3:
            self._do("ALTER TABLE {t} DROP COLUMN y1")
        self.subject.retyped()

    def respec(self) -> None:
        self.told.append("respec")
        update = self.subject.table().java.updateSpec()
        expressions: Any = self.subject.spark._jvm.org.apache.iceberg.expressions.Expressions
        fields = {str(f.name()) for f in self.subject.table().java.spec().fields()}
        if "id_bucket" in fields:
            update.removeField("id_bucket").commit()
        else:
            update.addField("id_bucket", expressions.bucket("id", 3)).commit()

    def _do(self, statement: str) -> None:
        self.told.append(statement)
        self.subject.sql(statement)

    def _values(self, most: int) -> str:
        return ", ".join(self._row() for _ in range(self.random.randint(1, most)))

    def _row(self) -> str:
        values = [str(self.random.randrange(12)), self._part(), f"'{self._word()}'", self._number()]
        if self.subject.kind.nested:
            values += [
                f"map('k', {self.random.randrange(3)}, 'l', 1)",
                f"named_struct('a', {self._int()}, 'b', array())",
            ]
        names = self.subject.spark.table(self.subject.name).columns
        return f"({', '.join(values + [self._int() for _ in names[len(values) :]])})"

    def _ids(self) -> str:
        return ", ".join(str(self.random.randrange(14)) for _ in range(self.random.randint(1, 4)))

    def _part(self) -> str:
        return self.random.choice(["'a'", "'b'", "CAST(NULL AS string)"])

    def _word(self) -> str:
        return self.random.choice("xyz")

    def _number(self) -> str:
        return self.random.choice(["0D", "-0D", "1.5D", "CAST('NaN' AS double)", "CAST(NULL AS double)"])

    def _int(self) -> str:
        return self.random.choice(["1", "2", "CAST(NULL AS int)"])


class Unique(Story):
    """A history whose rows have ids of their own, as rows under identifier columns have."""

    rekeys, shift = 0, 100

    def rekey(self) -> None:
        self.rekeys += 1
        self._do(f"UPDATE {{t}} SET id = id + {self.shift * self.rekeys} WHERE id IN ({self._ids()})")

    def _values(self, most: int) -> str:
        there = {row.id for row in self.subject.spark.table(self.subject.name).select("id").collect()}
        free = [i for i in range(60) if i not in there]
        ids = self.random.sample(free[:14], self.random.randint(1, most))
        return ", ".join(f"({i}, {self._row().split(', ', 1)[1]}" for i in ids)


class Crowded(Unique):
    """A history of thousands of rows, in several files; most statements change hundreds of them."""

    people, shift = 1_500, 1_000_000

    def begin(self) -> None:
        self.told.append("begin")
        rows = self.subject.spark.range(0, self.people, 1, 5).selectExpr(*self._made())
        # As they are: a commit of many files, which a full read takes part by part.
        written = rows.writeTo(self.subject.name).option("distribution-mode", "none").option("fanout-enabled", "true")
        written.append()

    def insert(self) -> None:
        self._do(
            f"INSERT INTO {{t}} SELECT {', '.join(self._made())} FROM range({self.people}) "
            "WHERE id NOT IN (SELECT id FROM {t})"
        )

    def drop_partition(self) -> None:
        super().drop_partition()
        self.insert()

    def overwrite(self) -> None:
        super().overwrite()
        self.insert()

    def _ids(self) -> str:
        few, many = self.people // 20, self.people // 4
        return ", ".join(map(str, self.random.sample(range(self.people), self.random.randint(few, many))))

    def _made(self) -> list[str]:
        """What the columns of now hold, by the row's `id`."""
        salt = self.random.randrange(1_000_000)
        pick = f"1 + pmod(hash(id, {salt}), "
        made = {
            "id": "id",
            "p": f"element_at(array('a', 'b', CAST(NULL AS string)), {pick}3))",
            "v": f"concat('{self._word()}', {pick}100))",
            "d": f"element_at(array(0D, -0D, 1.5D, double('NaN'), CAST(NULL AS double)), {pick}5))",
            "m": f"map('k', {pick}3), 'l', 1)",
            "s": f"named_struct('a', {pick}3), 'b', array('c'))",
        }
        names = self.subject.spark.table(self.subject.name).columns
        return [f"{made.get(name, f'{pick}3)')} AS {name}" for name in names]
