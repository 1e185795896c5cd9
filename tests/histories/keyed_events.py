"""Changes of rows with any key -> unwrapped events of a topic, as ExtractNewRecordState makes them.

A change of key is a delete with the new key in its header, and a create with the old one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from serde.events.kinds.header_names import NEW_KEY_HEADER, OLD_KEY_HEADER
from tests.model.recordings import Record

_BEGAN_NS = 1_700_000_000_000_000_000
_STEP_NS, _STEP_LSN = 1_000_000, 8
_TYPES = {"__op": "string", "__deleted": "string", "__source_ts_ns": "int64", "__source_lsn": "int64"}
_EITHER = {"optional": True}
Row = Mapping[str, Any]


@attrs.define
class KeyedEvents:
    """Records of one partition.

    `key_fields` and `fields` are Connect's; without those of the key nothing has a schema. `left_out` are the columns
    that no event has; `step_ns` is between the dates of two changes, 0 where all are of one transaction.
    """

    topic: str
    fields: Sequence[Row] = ()
    key_fields: Sequence[Row] | None = None
    left_out: Sequence[str] = ()
    step_ns: int = _STEP_NS
    log: list[Record] = attrs.field(factory=list)
    _steps: int = 0

    def put(self, key: Row, op: str, row: Row | None = None, header: tuple[str, bytes] | None = None) -> None:
        """Add an event, and a tombstone behind a delete."""
        self._steps += not (header is not None and header[0] == OLD_KEY_HEADER)
        own = (op, str(op == "d").lower(), _BEGAN_NS + self._steps * self.step_ns, 1000 + self._steps * _STEP_LSN)
        columns = {**{str(field["field"]): None for field in self.fields}, **key, **(row or {})}
        told = {name: value for name, value in zip(_TYPES, own, strict=True) if name not in self.left_out}
        added = [{"field": name, "type": _TYPES[name], **_EITHER} for name in told]
        self._append(key, self._encode({**columns, **told}, (*self.fields, *added)), header)
        if op == "d":
            self._append(key, None, header)

    def move(self, old: Row, new: Row, row: Row, old_key: bytes | None = None) -> None:
        """Change the key of a row; `old_key` stands in its header, for that key."""
        self.put(old, "d", None, (NEW_KEY_HEADER, self._encode_key(new)))
        self.put(new, "c", row, (OLD_KEY_HEADER, self._encode_key(old) if old_key is None else old_key))

    def send_again(self, first: int) -> None:
        """Add everything from a place on once more, up to now."""
        for one in self.log[first:]:
            self._add(one.key, one.value, one.headers)

    def _append(self, key: Row, value: bytes | None, header: tuple[str, bytes] | None) -> None:
        self._add(self._encode_key(key), value, () if header is None else (header,))

    def _add(self, key: bytes | None, value: bytes | None, headers: tuple[tuple[str, bytes | None], ...]) -> None:
        self.log.append(Record(self.topic, 0, len(self.log), key, value, headers=headers))

    def _encode_key(self, key: Row) -> bytes:
        return self._encode(key, ())

    def _encode(self, payload: Row, fields: Sequence[Row]) -> bytes:
        if self.key_fields is None:
            return json.dumps(payload).encode()
        schema = {"type": "struct", "fields": [*self.key_fields, *fields], "optional": False}
        return json.dumps({"schema": schema, "payload": payload}).encode()
