"""Manifest -> its entries, as PyIceberg reads them, also where its partitions have types that PyIceberg cannot read.

Java writes the type of a second uuid, or of a second decimal of the same digits, by the name of the first, which Avro
allows and PyIceberg does not follow. Nor does it know timestamps of nanoseconds. So PyIceberg gets such a manifest with
names replaced by what they stand for, and with whole numbers for those timestamps: the entries' bytes are the same.
"""

from __future__ import annotations

from io import BytesIO
from typing import Any, cast

import orjson
from attrs import frozen
from fastavro import schemaless_reader, schemaless_writer
from pyiceberg.io import FileIO, InputFile, InputStream
from pyiceberg.manifest import ManifestEntry, ManifestFile

_SCHEMA_KEY = "avro.schema"
_HEADER = {
    "type": "record",
    "name": "header",
    "fields": [
        {"name": "magic", "type": {"type": "fixed", "name": "magic", "size": 4}},
        {"name": "meta", "type": {"type": "map", "values": "bytes"}},
        {"name": "sync", "type": {"type": "fixed", "name": "sync", "size": 16}},
    ],
}
"""What an object container file begins with, as the Avro specification has it."""

_NANOSECONDS = "timestamp-nanos"


def read_manifest_entries(manifest: ManifestFile, io: FileIO, *, discard_deleted: bool = True) -> list[ManifestEntry]:
    """Return the entries of a manifest in its order; without `discard_deleted` those of files that it removed too.

    Raises what PyIceberg raises of a file that cannot be had, or is no manifest.
    """
    return list(manifest.fetch_manifest_entry(cast("FileIO", _ManifestStore(io)), discard_deleted=discard_deleted))


@frozen
class _ManifestStore:
    """The part of a FileIO that PyIceberg reads a manifest by."""

    io: FileIO

    def new_input(self, location: str) -> _ManifestInput:
        return _ManifestInput(self.io.new_input(location))


@frozen
class _ManifestInput:
    file: InputFile

    def open(self, *, seekable: bool = True) -> InputStream:
        with self.file.open(seekable=seekable) as stream:
            return BytesIO(spell_out_types(stream.read()))


def spell_out_types(data: bytes) -> bytes:
    """Return an Avro file whose header names no type that it has described before; the same bytes where it does not."""
    stream = BytesIO(data)
    header: Any = schemaless_reader(stream, _HEADER, None)
    schema = orjson.loads(header["meta"][_SCHEMA_KEY])
    spelled = _spell_out(schema, {})
    if spelled == schema:
        return data
    header["meta"][_SCHEMA_KEY] = orjson.dumps(spelled)
    output = BytesIO()
    schemaless_writer(output, _HEADER, header)
    output.write(data[stream.tell() :])
    return output.getvalue()


def _spell_out(schema: Any, named: dict[str, Any]) -> Any:
    """Replace names in a schema; `named` has the types that were described so far, by name."""
    if isinstance(schema, str):
        return named.get(schema, schema)
    if isinstance(schema, list):
        return [_spell_out(one, named) for one in schema]
    spelled_out = {key: value for key, value in schema.items() if (key, value) != ("logicalType", _NANOSECONDS)}
    for key in ("type", "items", "values"):
        if key in spelled_out:
            spelled_out[key] = _spell_out(spelled_out[key], named)
    if isinstance(spelled_out.get("fields"), list):
        spelled_out["fields"] = [_spell_out(field, named) for field in spelled_out["fields"]]
    if spelled_out.get("type") == "fixed" and "name" in spelled_out:
        named[spelled_out["name"]] = spelled_out
    return spelled_out
