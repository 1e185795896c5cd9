"""A scene -> Wrong, where an invariant does not hold in it."""

from __future__ import annotations

from collections import Counter

from tests.simulation.catalog_server import Rows
from tests.simulation.expectations import Expectation, Wrong
from tests.simulation.scene import Scene


class Checks(Scene):
    """What has to hold, looked at after each step."""

    def _check(self, *, complete: bool) -> None:
        if strange := self.search.indexes.keys() - self.broker.topics.keys():
            raise Wrong(f"indexes {sorted(strange)} are there, and no topic has their names")
        if self.server.broken:
            raise Wrong(f"a file was deleted that a table needs: {self.server.broken[0]}")
        for name, expected in self.tables.items():
            if name in self.lost:
                continue
            place = self._place(name)
            self._check_letters(expected)
            rows = self._documents(expected) if self.story.world.documents else self._rows(place, expected)
            if rows is None:
                continue
            if self.is_shared:
                rows = [row for row in rows if expected.has(row["id"])]
            done = complete or self._is_complete(expected)
            try:
                expected.check(rows, complete=done)
            except Wrong as wrong:
                raise Wrong(f"{name}: {wrong}") from None

    def _documents(self, expected: Expectation) -> Rows | None:
        """The documents of an index. What is sent is there before anybody acknowledges it: until then nobody can tell
        what has to be there.
        """
        if expected.topic not in self.search.indexes:
            self._refuse_absence(f"index {expected.topic}", expected)
            return None
        documents = self.search.indexes[expected.topic].documents
        if wrong := [one for one, (_, told) in documents.items() if not self._is_its_id(one, told["id"], expected)]:
            raise Wrong(f"document {wrong[0]} of {expected.topic} has the id of another")
        return [document for _, document in documents.values()] if self._is_complete(expected) else None

    def _is_its_id(self, told: str, key: int, expected: Expectation) -> bool:
        """Tell whether a document's id is its key, or, where each record has one, the place of one with the key."""
        if expected.upsert:
            return told == str(key)
        name, partition, offset = told.rsplit("+", 2)
        topic = self.broker.topics[expected.topic]
        return name == expected.topic and topic.source.truth[topic.places(int(partition))[int(offset)]].key == key

    def _refuse_absence(self, what: str, expected: Expectation) -> None:
        if any(truth.row is not None for truth in expected.taken):
            raise Wrong(f"{what} is not there, but its offsets moved")

    def _rows(self, name: str, expected: Expectation) -> Rows | None:
        if name not in self.server.tables:
            self._refuse_absence(name, expected)
            return None
        self._check_vectors(name)
        try:
            return self.server.rows(name)
        except KeyError as gone:
            raise Wrong(f"{name} cannot be read: file {gone} is gone") from gone

    def _check_vectors(self, name: str) -> None:
        """Readers go by one vector of a data file (spec, "Deletion Vectors")."""
        newest = self.server.tables[name].newest if name in self.server.tables else None
        vectors = Counter(file.referenced for file in newest.files if file.offset is not None) if newest else Counter()
        if vectors and max(vectors.values()) > 1:
            raise Wrong(f"{name} has two vectors of one data file")

    def _is_complete(self, expected: Expectation) -> bool:
        topic = self.broker.topics[expected.topic]
        return all(expected.ends.get((expected.topic, p), 0) >= topic.end(p) for p in range(topic.source.partitions))

    def _lacks_rows(self, expected: Expectation) -> bool:
        """Tell whether what was not taken in has rows: of a table that was put back nothing else need be told to it."""
        return any(
            truth.says in ("change", "read") and not truth.tombstone
            for at, known in self._there().items()
            for offset, truth in known.items()
            if at[0] == expected.topic and offset >= expected.ends.get(at, 0)
        )

    def _check_letters(self, expected: Expectation) -> None:
        letters = {letter.place for letter in self.around.letters if letter.place[0] == expected.topic}
        if silent := [letter.place for letter in self.around.letters if not letter.reason]:
            raise Wrong(f"the dead letter of {silent[0]} does not say why it is one")
        if self.around.repeated:
            raise Wrong(f"the dead letter of {self.around.repeated[0]} came more than once in one batch")
        if missing := expected.poison - letters:
            raise Wrong(f"no dead letter of {min(missing)}, which cannot be read")
        topic = self.broker.topics[expected.topic]
        for name, partition, offset in letters:
            places = topic.places(partition)
            if name not in map(self._topic, self.lost) and topic.source.truth[places[offset]].says != "poison":
                raise Wrong(f"{name}-{partition} offset {offset} is a dead letter, and nothing is wrong with it")

    def _topic(self, table: str) -> str:
        return self.tables[table].topic

    def _check_group(self) -> None:
        if "rolled back" in self.reasons:
            return
        for at, end in self.around.group.items():
            if end > self._acknowledged(at) and self._table_of(at[0]) not in self.lost:
                raise Wrong(f"the consumer group stands at {end} of {at}, and the tables at {self._acknowledged(at)}")

    def _kept(self) -> list[Expectation]:
        return [expected for name, expected in self.tables.items() if name not in self.lost]

    def _check_told(self) -> None:
        """Who comes to the end of all else has told what is lost: where a topic, or a table, was made again, or rows
        came for one that was dropped.
        """
        for name in self.lost:
            again = "recreated" in self.reasons or self._place(name) in self.server.tables
            if again or self.tables[name].brings_rows(self._there()):
                raise Wrong(f"{name}, or its topic, is not what it was, and nobody is told")

    def _check_stored(self) -> None:
        ends = {at: self.broker.topics[at[0]].end(at[1]) for at in self.broker.partitions()}
        if self.lost or self.put_back:
            return
        if {at: self.saved.get(at, 0) for at in ends} != ends:
            raise Wrong(f"in the end the offsets table stands at {self.saved}, and the topics end at {ends}")
        if {at: self.around.group.get(at, 0) for at in ends} != ends:
            raise Wrong(f"in the end the consumer group stands at {self.around.group}, and the topics end at {ends}")
