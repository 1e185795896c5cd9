"""Topics, names that events gave -> names of indexes, each of one owner. On the driver."""

from __future__ import annotations

import attrs

from connector.errors import DataFault, FatalError
from connector.opensearch.indexes.index_names import to_index_name
from connector.settings import TableSettings
from connector.settings.opensearch.documents import OpenSearchSettings
from connector.sink.destinations.naming import index_name, raw_index_name


@attrs.define(eq=False)
class IndexNaming:
    """The names of a sink's indexes, and what each was made of: two that differ may map to one index."""

    _settings: TableSettings
    _search: OpenSearchSettings
    _owners: dict[str, tuple[str, str]] = attrs.field(factory=dict, init=False)

    def of_topic(self, topic: str) -> str:
        """Return the name of a topic's index.

        Raises:
            FatalError: another topic has the same, though nobody said so: names of indexes have no capitals, say.
        """
        configured = self._search.existing.get(topic)
        if configured:
            return configured
        name = self._add_stream_prefix(index_name(topic, self._settings))
        owner = raw_index_name(topic, self._settings)
        own, other = self._owners.setdefault(name, (owner, topic))
        if own != owner:
            raise FatalError(
                f"topics {other} and {topic} both map to index {name}; name an index for one of them by "
                "topic.to.existing.resource.mapping (or this one, if they are to share it), or leave one out"
            )
        return name

    def claim(self, name: str) -> None:
        """Take an index for a name that events gave. Raises DataFault: another name, that differs, has it."""
        if self._settings.routes is None:
            return
        own, _ = self._owners.setdefault(self.place(name), (name, name))
        if own != name:
            raise DataFault(
                f"{name} maps to index {self.place(name)}, which has the documents of {own}; name an index for it "
                "(topic.to.existing.resource.mapping)"
            )

    def owner(self, name: str) -> str:
        """Return what an index's name is made of; empty where it is named as it is."""
        return name if self._settings.routes is not None else self._owners.get(name, ("", ""))[0]

    def place(self, name: str) -> str:
        """Return the index of a name that events gave: small letters, and nothing that no index may be called."""
        return name if self._settings.routes is None else self._add_stream_prefix(to_index_name(name))

    def _add_stream_prefix(self, name: str) -> str:
        prefix = self._search.series.prefix
        return f"{prefix}-{name}" if prefix else name
