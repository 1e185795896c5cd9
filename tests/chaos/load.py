"""A seed -> transactions of random statements: inserts, updates, changes of keys, deletes, large values.

The statements hold whatever the rows are, so that nobody has to know whether a transaction that a crash cut short was
committed. They are plain SQL.
"""

from __future__ import annotations

from random import Random

KEYS = 300
"""What most statements are about, so that a key has many changes."""
_RARE = 0.3
"""The others are about keys that have one change or two, so that no later change hides what went wrong."""
REGIONS = ("north", "south", "east")
_LARGE = (2_500, 9_000)
_ROLLED_BACK = 0.08


class Load:
    """An endless stream of transactions."""

    def __init__(self, seed: int, keys: int = KEYS) -> None:
        """Draw from this seed, over so many keys of each table."""
        self._random, self._keys = Random(seed), keys
        self._count = 0
        self._rare: dict[bool, list[int]] = {True: [], False: []}

    def transaction(self) -> str:
        """The next one; some are rolled back."""
        statements = [self._statement() for _ in range(self._random.choice((1, 1, 2, 3, 6)))]
        end = "ROLLBACK" if self._random.random() < _ROLLED_BACK else "COMMIT"
        return "".join(f"{one};\n" for one in ("BEGIN", *statements, end))

    def _statement(self) -> str:
        self._count += 1
        kinds = (self._put, self._put, self._touch, self._touch, self._enlarge, self._delete, self._rekey, self._sweep)
        people = self._random.random() < 0.6
        return self._random.choice(kinds)(people)

    def _put(self, people: bool) -> str:
        key = self._fresh(people) if self._random.random() < _RARE else self._hot()
        if people:
            return (
                f"INSERT INTO people (id, name, n, amount, at, big) VALUES ({key}, 'p{self._count}', "
                f"{self._number()}, {self._amount()}, {self._time()}, {self._large()}) ON CONFLICT (id) DO UPDATE SET "
                "name = excluded.name, n = excluded.n"
            )
        return (
            f"INSERT INTO orders (region, id, n, payload) VALUES ('{self._region(key)}', {key}, {self._number()}, "
            f"'o{self._count}') ON CONFLICT (region, id) DO UPDATE SET n = excluded.n, payload = excluded.payload"
        )

    def _touch(self, people: bool) -> str:
        table, column = ("people", "name") if people else ("orders", "payload")
        return f"UPDATE {table} SET {column} = 't{self._count}', n = {self._number()} WHERE {self._where(people)}"

    def _enlarge(self, people: bool) -> str:
        table, column = ("people", "big") if people else ("orders", "payload")
        return f"UPDATE {table} SET {column} = {self._large()} WHERE {self._where(people)}"

    def _delete(self, people: bool) -> str:
        return f"DELETE FROM {'people' if people else 'orders'} WHERE {self._where(people)}"

    def _rekey(self, people: bool) -> str:
        new = self._hot()
        if people:
            free = f"NOT EXISTS (SELECT 1 FROM people AS other WHERE other.id = {new})"
            return f"UPDATE people SET id = {new} WHERE {self._where(people)} AND {free}"
        region = self._region(new)
        free = f"NOT EXISTS (SELECT 1 FROM orders AS other WHERE other.region = '{region}' AND other.id = {new})"
        return f"UPDATE orders SET region = '{region}', id = {new} WHERE {self._where(people)} AND {free}"

    def _sweep(self, people: bool) -> str:
        every = self._random.randint(12, 40)
        some = f"id < {self._keys} AND id % {every} = {self._random.randrange(every)}"
        return f"UPDATE {'people' if people else 'orders'} SET n = {self._count} WHERE {some}"

    def _where(self, people: bool) -> str:
        key = self._known(people) if self._random.random() < _RARE else self._hot()
        return f"id = {key}" if people else f"region = '{self._region(key)}' AND id = {key}"

    def _hot(self) -> int:
        return self._random.randrange(self._keys)

    def _fresh(self, people: bool) -> int:
        """A key that nobody had, and that is changed once more at most: whatever is lost of it stays lost."""
        key = self._keys + self._count
        self._rare[people].append(key)
        return key

    def _known(self, people: bool) -> int:
        rare = self._rare[people]
        return rare.pop(self._random.randrange(len(rare))) if rare else self._hot()

    def _region(self, key: int) -> str:
        return self._random.choice(REGIONS) if key < self._keys else REGIONS[key % len(REGIONS)]

    def _number(self) -> str:
        return self._random.choice(("NULL", str(self._random.randrange(-1000, 1000)), str(self._count)))

    def _amount(self) -> str:
        return self._random.choice(("NULL", f"{self._random.randrange(10**9) / 100:.2f}"))

    def _time(self) -> str:
        second, micro = self._random.randrange(60), self._random.randrange(10**6)
        return self._random.choice(("NULL", f"'2026-03-04 05:06:{second:02}.{micro:06}+00'"))

    def _large(self) -> str:
        if self._random.random() < 0.3:
            return self._random.choice(("NULL", f"'small {self._count}'"))
        return f"'{self._random.randbytes(self._random.randint(*_LARGE) // 2).hex()}'"
