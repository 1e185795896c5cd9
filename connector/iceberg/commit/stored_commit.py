"""A row of the offsets table -> what it says of a connector's newest commit to a table."""

from __future__ import annotations

import attrs

from connector.iceberg.commit.kafka_offsets import KafkaOffsets


@attrs.frozen
class StoredCommit:
    """What the offsets table says of a table: the connector's position there, and which snapshot it came with."""

    position: KafkaOffsets
    uuid: str = ""
    snapshot_id: int | None = None
    sequence_number: int = 0

    def is_overtaken(self, stored: StoredCommit) -> bool:
        """Tell whether what is stored of the table by now tells more than this: a later commit, and no less far.

        A later one that is not as far was made where this one was rolled back, which this one's position tells.
        """
        is_later = stored.uuid == self.uuid and stored.sequence_number > self.sequence_number
        return is_later and not stored.position.behind(self.position)
