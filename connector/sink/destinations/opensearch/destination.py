"""A sink's settings -> its indexes of OpenSearch as a destination: what plans, writes and empties them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import attrs

from connector.iceberg.commit.kafka_offsets import KafkaOffsets
from connector.settings.opensearch.documents import OpenSearchSettings
from connector.sink.destinations.context import DestinationContext, open_deleted_keys
from connector.sink.destinations.opensearch.committer import OpenSearchCommitter
from connector.sink.destinations.opensearch.feeding_topics import check_feeding_topics
from connector.sink.destinations.opensearch.indexes import OpenSearchIndexes
from connector.sink.destinations.opensearch.lookups.deleted_document_lookup import DeletedDocumentLookup
from connector.sink.destinations.opensearch.lookups.waiting_keys import WaitingKeysLookup
from connector.sink.destinations.opensearch.replay import OpenSearchReplay
from connector.sink.destinations.opensearch.write.document_writer import OpenSearchWriterFactory
from connector.sink.model.destination import Lookups
from connector.sink.model.plan import BatchPlan


@attrs.frozen(eq=False)
class OpenSearchDestination:
    """The indexes of one sink; the offsets table alone knows what was acknowledged."""

    tables: OpenSearchIndexes
    committer: OpenSearchCommitter
    target_kind: str = "index"
    keeps_offsets: bool = False

    def stored_offsets(self) -> Mapping[str, KafkaOffsets]:
        """Return none: an index keeps no offsets."""
        return {}

    def writers(self) -> OpenSearchWriterFactory:
        """Return what opens the bulk requests of tasks."""
        return self.tables.writers()

    def lookups(self, names: Sequence[str], plan: BatchPlan) -> Lookups:
        """Return the join with the deleted keys, and what is done in turns; tasks look documents up themselves.

        Raises FatalError: as `feeding_topics.check_feeding_topics`.
        """
        writers = self.writers()
        check_feeding_topics(plan, names, writers.targets)
        deleted_keys = self.tables.deleted_keys
        late = None if deleted_keys is None else DeletedDocumentLookup(plan, deleted_keys)
        return Lookups(late, (WaitingKeysLookup(plan, writers, deleted_keys),))

    def replay_target(self) -> OpenSearchReplay:
        """Return what sends repaired dead letters."""
        return OpenSearchReplay(self.committer.spark, self.tables)

    def find_hold(self) -> str | None:
        """Hold nothing up."""
        return None

    def rest(self) -> None:
        """Nothing is due by time."""

    def finish(self) -> None:
        """Nothing goes on beside the batches."""

    def clean_up(self) -> None:
        """Remove old rows from the table of deleted keys."""
        if self.tables.deleted_keys is not None:
            self.tables.deleted_keys.clean_up()


def open_destination(context: DestinationContext) -> OpenSearchDestination:
    """Load the indexes of the sink's topics.

    Raises:
        GapError: an index that batches were acknowledged into is gone.
        RetriableError: the cluster or the catalog is away.
    """
    settings, stored = context.settings, context.offsets.tables
    search = cast("OpenSearchSettings", settings.destination)
    offsets = {name: noted.position for name, noted in stored.items()}
    indexes = OpenSearchIndexes(settings, search, offsets, open_deleted_keys(context))
    indexes.check({name: noted.uuid for name, noted in stored.items()})
    indexes.find(context.topics)
    return OpenSearchDestination(indexes, OpenSearchCommitter(context.spark, indexes, search))
