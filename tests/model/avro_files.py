"""Avro data files as fastavro reads them, and rows as it gives them: the slow, independent reader."""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

import fastavro
import pyarrow as pa
import zstandard


def rows(path: str) -> list[Any]:
    """Every row of a file, all blocks of it."""
    return read(io.BytesIO(unpacked(_bytes(path))))


def read(file: BinaryIO) -> list[Any]:
    """The same of an open file, in a codec that fastavro has."""
    return list(fastavro.reader(file))


def metadata(path: str) -> dict[str, str]:
    """What a file says of itself."""
    return dict(fastavro.reader(io.BytesIO(unpacked(_bytes(path)))).metadata) | {"avro.codec": codec_of(_bytes(path))}


def blocks(path: str) -> list[int]:
    """Rows of each block."""
    return [block.num_records for block in fastavro.block_reader(io.BytesIO(unpacked(_bytes(path))))]


def codec_of(data: bytes) -> str:
    """The name of the codec in a header, in which it is the last entry."""
    head = data[: data.index(data[-16:])]
    return head[head.index(b"avro.codec") + 11 : -1].decode()


def unpacked(data: bytes) -> bytes:
    """The same file without compression, where fastavro lacks a library for the one it has."""
    sync, codec = data[-16:], codec_of(data)
    if codec not in ("snappy", "zstandard"):
        return data
    name = codec.encode()
    at = data.index(sync) + 16
    head = data[:at].replace(bytes([2 * len(name)]) + name, b"\x08null")
    made, stream = [head], io.BytesIO(data[at:])
    while stream.tell() < len(data) - at:
        count, size = (fastavro.schemaless_reader(stream, "long", None) for _ in range(2))
        block = stream.read(size)
        plain = (
            zstandard.ZstdDecompressor().decompressobj().decompress(block) if codec == "zstandard" else _snappy(block)
        )
        for number in (count, len(plain)):
            written = io.BytesIO()
            fastavro.schemaless_writer(written, "long", number)
            made.append(written.getvalue())
        assert stream.read(16) == sync
        made += [plain, sync]
    return b"".join(made)


def _snappy(block: bytes) -> bytes:
    """Raw snappy begins with the size of what it holds; what follows it is the checksum."""
    size = shift = 0
    for byte in block:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    plain: bytes = pa.Codec("snappy").decompress(block[:-4], size, asbytes=True)
    assert zlib.crc32(plain).to_bytes(4, "big") == block[-4:]
    return plain


def _bytes(path: str) -> bytes:
    return Path(path.removeprefix("file:")).read_bytes()


def ids(schema: Any) -> Iterator[int]:
    """Every id in an Avro schema of Iceberg's."""
    if isinstance(schema, list):
        for branch in schema:
            yield from ids(branch)
    elif isinstance(schema, dict):
        yield from (value for key, value in schema.items() if key in ("field-id", "element-id", "key-id", "value-id"))
        for part in ("type", "items", "values"):
            yield from ids(schema.get(part))
        for field in schema.get("fields", ()):
            yield from ids(field)


def schema_of(path: str) -> Any:
    """The Avro schema in a file."""
    return json.loads(metadata(path)["avro.schema"])


def expected(value: Any, kind: pa.DataType) -> Any:  # noqa: PLR0911 - one case per type
    """What fastavro gives for a value that Arrow gives as `value`: it knows no nanoseconds, and uuids as text only."""
    types = pa.types
    if value is None:
        return None
    if types.is_struct(kind):
        return {field.name: expected(value[field.name], field.type) for field in kind}
    if types.is_list(kind):
        return [expected(item, kind.value_type) for item in value]
    if types.is_map(kind):
        pairs = [(expected(key, kind.key_type), expected(item, kind.item_type)) for key, item in value]
        return dict(pairs) if types.is_string(kind.key_type) else [{"key": key, "value": item} for key, item in pairs]
    if isinstance(kind, pa.UuidType):
        return value.bytes
    if types.is_timestamp(kind) and kind.unit == "ns":
        return pa.scalar(value, kind).cast(pa.int64()).as_py()
    if isinstance(value, datetime):
        return value if value.tzinfo else value.replace(tzinfo=UTC)
    return value
