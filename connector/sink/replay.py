"""Dead letters, repaired -> their tables, as if they had come when they came. On the driver; no Spark job.

A letter goes through the sink's own decoding and fold. In a table with keys it changes nothing if a record that came
after it, in its topic-partition and up to where the sink stands, was about the same key, or truncated its source's
rows: Kafka's order within a key is the source's. Of truncates in other partitions the last one of each source counts,
which the table tells (`TablePlan.truncates`). Where a topic was deleted since, and made again, a letter's offset says
nothing: it stays dead. For documents that holds too: their versions tell what is newer, but an
index forgets those of deleted ones (docs/decisions/0032). How they get there: `ReplayTarget` of the destination.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set

import attrs
import numpy as np

from connector.errors import FatalError
from connector.kafka.admin import KafkaAdmin
from connector.kafka.consumer import assign_ranges
from connector.kafka.consumer.consumer_records import ConsumerRecords
from connector.kafka.dlq.reader import DeadLetterRecord
from connector.kafka.dlq.rejected_records import BATCH_STAGE
from connector.runtime.stop_signals import finish_first, leave_if_asked
from connector.runtime.topic_partitions import TopicPartition, is_other_topic
from connector.settings import SinkSettings
from connector.sink.convert.decoded_records import DecodedRecords
from connector.sink.convert.decoder import decode
from connector.sink.convert.header_ids import find_wanted_headers
from connector.sink.microbatch.lacking_fields import check_fields
from connector.sink.microbatch.processor import MAX_ROUNDS, BatchProcessor
from connector.sink.model.change_rows import ChangeBatch, compute_key_codes
from connector.sink.model.destination import Destination, ReplayTarget
from connector.sink.model.micro_batch import MicroBatch
from connector.sink.model.plan import BatchPlan, TablePlan
from connector.sink.model.truncate_scope import TruncateScope, scope_past_truncates
from connector.sink.model.truncates import Truncate
from serde.arrays import Ints, Mask

_PartitionLetters = tuple[list[DeadLetterRecord], ConsumerRecords]
"""Letters of one topic-partition, and their records."""


@attrs.frozen
class ReplayReport:
    """What became of letters, by id: put through, overtaken by later records, or still not usable (with the reason)."""

    done: tuple[str, ...]
    overtaken: tuple[str, ...]
    dead: Mapping[str, str]


@attrs.frozen(eq=False)
class _DecodedLetters:
    """Letters by topic-partition, with what they were decoded to by a plan whose tables have these names.

    `committed` tells by a table's index how far it is by its own commits: further than the sink, as after a crash.
    """

    runs: Mapping[TopicPartition, _PartitionLetters]
    plan: BatchPlan
    names: Sequence[str]
    outcomes: Mapping[TopicPartition, DecodedRecords]
    committed: Mapping[int, Mapping[TopicPartition, int]] = attrs.field(factory=dict)

    def find_faults(self) -> dict[str, str]:
        """Return the letters that could not be decoded, by name, and why."""
        return {
            self.runs[at][0][fault.row].name: fault.reason
            for at, outcome in self.outcomes.items()
            for fault in outcome.faults
        }

    def parts(self, index: int) -> list[tuple[ChangeBatch, list[str]]]:
        """Return a table's parts, with the name of each row's letter."""
        parts = []
        for at, outcome in self.outcomes.items():
            ids = {letter.offset: letter.name for letter in self.runs[at][0]}
            for table, part in zip(outcome.tables, outcome.parts, strict=True):
                if table == index:
                    parts.append((part, [ids[int(offset)] for offset in part.order.offset]))
        return parts


@attrs.frozen
class _TableReplay:
    """What became of the letters that have rows in a table, by name, as a `ReplayReport` tells it."""

    done: Set[str] = frozenset()
    overtaken: Set[str] = frozenset()
    dead: Mapping[str, str] = attrs.field(factory=dict)


class Replayer:
    """Puts letters through one sink that does not run meanwhile."""

    def __init__(
        self,
        settings: SinkSettings,
        destination: Destination,
        batches: BatchProcessor,
        cluster: KafkaAdmin,
        known: Sequence[DeadLetterRecord] = (),
    ) -> None:
        """Work from where the sink stands; `known` are all letters: their records changed nothing, or as replayed."""
        self._settings, self._destination, self._batches = settings, destination, batches
        self._cluster = cluster
        self._known = sorted(known, key=lambda letter: letter.place)

    def replay(self, letters: Sequence[DeadLetterRecord], *, execute: bool) -> ReplayReport:
        """Put letters through, or tell what would become of them.

        Raises:
            FatalError: records that came after a letter are gone from the topic, so that nobody knows whether they
                changed the same key; a table lacks a field (`schema.evolution=validate-only`); or another process
                commits under the sink's name.
            RetriableError: broker or catalog are away.
        """
        dead = self._find_unusable(letters)
        usable = _group_by_partition([letter for letter in letters if letter.name not in dead])
        decoded = self._decode(usable, execute=execute)
        dead |= decoded.find_faults()
        alive = {letter.name for own, _ in usable.values() for letter in own} - dead.keys()
        done, late, target = set[str](), set[str](), self._destination.replay_target()
        for table, name in zip(decoded.plan.tables, decoded.names, strict=True):
            leave_if_asked()
            put = self._replay_table(decoded, table, name, target, execute=execute)
            done |= put.done
            late |= put.overtaken
            dead |= put.dead
        # A record without a row (a tombstone of an append table) has nothing to put through.
        done |= alive - done - late - dead.keys()
        # One of several tables may refuse what another one takes: that letter is not through.
        return _report(letters, done - dead.keys(), late - done - dead.keys(), dead)

    def _find_unusable(self, letters: Sequence[DeadLetterRecord]) -> dict[str, str]:
        """Return the letters that cannot be put through, whatever is in them, by name, and why."""
        offsets = self._batches.position.offsets
        dead = {x.name: _NOT_COMMITTED_REASON for x in letters if x.offset >= offsets.get((x.topic, x.partition), 0)}
        dead |= {x.name: _BATCH_REASON for x in letters if x.stage == BATCH_STAGE}
        dead |= {x.name: _OMITTED_REASON for x in letters if x.omitted}
        dead |= {x.name: _SHORTENED_REASON for x in letters if x.shortened}
        return dead | {x.name: _OTHER_TOPIC_REASON for x in letters if self._is_of_other_topic(x)}

    def _replay_table(
        self, decoded: _DecodedLetters, table: TablePlan, name: str, target: ReplayTarget, *, execute: bool
    ) -> _TableReplay:
        """Put a table's rows through, but those that it has, or that later records changed."""
        by_part = decoded.parts(table.index)
        if not by_part:
            return _TableReplay()
        noted = target.find_replayed(name)
        before = {x.name for own, _ in decoded.runs.values() for x in own if noted & x.names}
        done = {one for _, ids in by_part for one in ids if one in before}
        fresh, _ = select_rows(by_part, [np.array([one not in before for one in ids]) for _, ids in by_part])
        kept, late = select_rows(fresh, self._mark_standing(decoded, table, name, fresh) if table.upsert else None)
        if not kept:
            return _TableReplay(done, late)
        with finish_first():
            put = target.replay(decoded.plan, table.index, name, kept, execute=execute)
        done |= {one for _, ids in kept for one in ids} - put.overtaken - put.dead.keys()
        return _TableReplay(done, late | put.overtaken, put.dead)

    def _is_of_other_topic(self, letter: DeadLetterRecord) -> bool:
        """Tell whether a letter's topic was deleted since, and another is read under its name."""
        return is_other_topic(letter.topic_id, self._batches.position.topic_ids.get(letter.topic, ""))

    def _decode(self, runs: Mapping[TopicPartition, _PartitionLetters], *, execute: bool) -> _DecodedLetters:
        """Decode all letters, as if none of them came before a truncate: `_mark_standing` tells."""
        start = {at: int(run.offset[0]) for at, (_, run) in runs.items()}
        end = {at: int(run.offset[-1]) + 1 for at, (_, run) in runs.items()}
        for _ in range(MAX_ROUNDS):
            plan, names = self._batches.plan(MicroBatch(-1, start, end))
            committed = {table.index: table.committed for table in plan.tables}
            tables = tuple(attrs.evolve(table, committed={}) for table in plan.tables)
            plan = attrs.evolve(plan, tables=tables, label="replay", max_letters=len(self._known))
            whole = _forget_truncates(plan)
            outcomes = {at: decode(run, whole) for at, (_, run) in runs.items()}
            needs = [need for outcome in outcomes.values() for need in outcome.needs]
            if not needs or not execute:
                self._check_fields(names, outcomes.values())
                return _DecodedLetters(runs, plan, names, outcomes, committed)
            self._destination.tables.apply_schema_changes(needs)
        raise FatalError("tables could not be prepared for the dead letters; see the log")

    def _check_fields(self, names: Sequence[str], outcomes: Iterable[DecodedRecords]) -> None:
        """Refuse letters with fields that their tables lack where batches with these are refused, too."""
        drift = frozenset[tuple[int, str]]().union(*(outcome.metrics.drift for outcome in outcomes))
        label = self._destination.tables.label
        check_fields(self._settings.table, [(label(names[index]), field) for index, field in drift])

    def _mark_standing(
        self, decoded: _DecodedLetters, table: TablePlan, name: str, parts: list[tuple[ChangeBatch, list[str]]]
    ) -> list[Mask]:
        """Mark rows whose key no later record of their topic-partition changed, and whose source none truncated."""
        plan, runs, outcomes, stands = decoded.plan, decoded.runs, decoded.outcomes, self._batches.position.offsets
        ranks = {rank: at for at, rank in plan.ranks.items()}
        keep = [np.ones(len(part), np.bool_) for part, _ in parts]
        for at in {ranks[int(rank)] for part, _ in parts for rank in np.unique(part.order.partition)}:
            own = [(i, part) for i, (part, _) in enumerate(parts) if ranks[int(part.order.partition[0])] == at]
            first = min(int(part.order.offset.min()) for _, part in own)
            truncates, progress = list[Truncate](), [one for outcome in outcomes.values() for one in outcome.progress]
            if self._settings.table.truncate and table.truncates:
                # Of the last truncate of each source, in whatever partition, the table itself tells.
                left = find_untruncated(runs[at][1], plan, table, TruncateScope())
                for i, part in own:
                    keep[i] &= np.isin(part.order.offset, left)
            end = max(stands.get(at, 0), decoded.committed.get(table.index, {}).get(at, 0))
            for later in self._decode_later(_forget_truncates(plan), at, first + 1, end):
                truncates += [each for each in later.truncates if each.table == table.index]
                progress += later.progress
                held = [part for index, part in zip(later.tables, later.parts, strict=True) if index == table.index]
                for i, part in own:
                    keep[i] &= ~mark_superseded(part, held, table.layout.keys)
            if truncates and self._settings.table.truncate:
                sources = self._batches.sources(plan, table, name, progress, truncates)
                left = find_untruncated(runs[at][1], plan, table, scope_past_truncates(truncates, sources))
                for i, part in own:
                    keep[i] &= np.isin(part.order.offset, left)
        return keep

    def _decode_later(self, plan: BatchPlan, at: TopicPartition, start: int, end: int) -> Iterable[DecodedRecords]:
        """Decode the records from `start` to `end`, where the sink stands or a table of it, a fetch at a time.

        Dead ones changed nothing; those replayed since count as they were put through.
        """
        # Whatever else they hold that the table does not have: only whose key they are about is asked.
        plan = attrs.evolve(plan, evolve=False)
        oldest = self._cluster.fetch_beginning_offsets([at])[at]
        known = [
            x
            for x in self._known
            if (x.topic, x.partition) == at and start <= x.offset < end and not self._is_of_other_topic(x)
        ]
        if start < end and oldest > start:
            raise FatalError(
                f"{at[0]}-{at[1]} begins at offset {oldest}: retention removed records after a dead letter, so "
                "it is unknown whether they changed the same key; write the row by other means"
            )
        consumed = assign_ranges(self._settings.kafka, {at: start}, {at: end}, 1).all_records() if start < end else ()
        headers = find_wanted_headers(at[0], plan.events)
        for fetched in consumed:
            if _is_known_dead(fetched, known):
                continue
            run = fetched.check_readable().with_named_headers(headers)
            dead = np.isin(run.offset, [letter.offset for letter in known])
            yield decode(run.only(np.flatnonzero(~dead)) if dead.any() else run, plan)
        again = [letter for letter in known if letter.replayed]
        if again:
            yield decode(_to_records(at, again), plan)


_BATCH_REASON = "a record batch that cannot be read holds no record to put through; its value is the batch's bytes"
_OMITTED_REASON = (
    "its value was too large for the dead letter topic and is not in it: give it by --from, from the record itself"
)
_SHORTENED_REASON = (
    "its headers or its key were too large for the dead letter topic and are not in it: write the row by other means, "
    "or let Debezium read it again"
)
_OTHER_TOPIC_REASON = (
    "its topic was deleted and made again since: nobody knows what came after it, or whether that changed its key; if "
    "nothing did, produce it to the topic again"
)
_NOT_COMMITTED_REASON = "the sink has not committed the batch of this record yet: run it first"


def _report(
    letters: Iterable[DeadLetterRecord], done: Set[str], late: Set[str], dead: Mapping[str, str]
) -> ReplayReport:
    """Tell of letters by their ids, not by the names that commits have for them."""
    ids = {letter.name: letter.id for letter in letters}
    return ReplayReport(
        tuple(sorted(ids[name] for name in done)),
        tuple(sorted(ids[name] for name in late)),
        {ids[name]: reason for name, reason in dead.items()},
    )


def _is_known_dead(run: ConsumerRecords, known: Iterable[DeadLetterRecord]) -> bool:
    """Tell whether this is a record batch that cannot be read, and that is a dead letter already."""
    batch = run.unreadable
    return batch is not None and any(x.stage == BATCH_STAGE and batch.first <= x.offset <= batch.last for x in known)


def _group_by_partition(letters: Iterable[DeadLetterRecord]) -> dict[TopicPartition, _PartitionLetters]:
    by_at: dict[TopicPartition, list[DeadLetterRecord]] = {}
    for letter in sorted(letters, key=lambda letter: letter.place):
        by_at.setdefault((letter.topic, letter.partition), []).append(letter)
    return {at: (own, _to_records(at, own)) for at, own in by_at.items()}


def _to_records(at: TopicPartition, letters: Sequence[DeadLetterRecord]) -> ConsumerRecords:
    records = [(letter.offset, letter.key, letter.value) for letter in letters]
    return ConsumerRecords.of_records(at, records, [letter.headers for letter in letters])


def _forget_truncates(plan: BatchPlan) -> BatchPlan:
    return attrs.evolve(plan, tables=tuple(attrs.evolve(table, truncates={}) for table in plan.tables))


def find_untruncated(run: ConsumerRecords, plan: BatchPlan, table: TablePlan, scope: TruncateScope) -> Ints:
    """Return the offsets of records of a run that change the table although it lost rows to truncates.

    These are the truncates of `scope`, and the last one of each source that the table knows of.
    """
    tables = tuple(attrs.evolve(one, truncated=scope) if one.index == table.index else one for one in plan.tables)
    outcome = decode(run, attrs.evolve(plan, tables=tables))
    parts = [part for index, part in zip(outcome.tables, outcome.parts, strict=True) if index == table.index]
    left = (part.order.offset[~part.truncated] for part in parts)
    rows: Ints = np.concatenate([np.zeros(0, np.int64), *left])
    # A record without value tells no source; it is from before in any case.
    return rows if scope.whole is None else rows[rows > scope.whole.offsets.get(run.at, -1)]


def mark_superseded(part: ChangeBatch, later: Sequence[ChangeBatch], keys: Sequence[str]) -> Mask:
    """Mark rows whose key is in a later part, at a greater offset."""
    if not later:
        return np.zeros(len(part), np.bool_)
    codes = compute_key_codes((part, *later), keys)
    own, others = codes[: len(part)], codes[len(part) :]
    newest: Ints = np.full(int(codes.max()) + 1, -1, np.int64)
    np.maximum.at(newest, others, np.concatenate([p.order.offset for p in later]))
    passed: Mask = newest[own] > part.order.offset
    return passed


def select_rows(
    parts: list[tuple[ChangeBatch, list[str]]], keep: list[Mask] | None
) -> tuple[list[tuple[ChangeBatch, list[str]]], set[str]]:
    """Keep the rows under the masks, all without them; the second result names the letters of the others."""
    if keep is None:
        return parts, set()
    kept, gone = [], set[str]()
    for (part, ids), mask in zip(parts, keep, strict=True):
        gone |= {one for one, stays in zip(ids, mask, strict=True) if not stays}
        if mask.any():
            rows = np.flatnonzero(mask)
            kept.append((part.take(rows), [ids[row] for row in rows]))
    return kept, gone
