"""A metadata file's location -> the table that it describes, read with PyIceberg."""

from __future__ import annotations

import orjson
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.serializers import Compressor
from pyiceberg.table import StaticTable
from pyiceberg.table.metadata import TableMetadataUtil

from connector.iceberg.catalog.file_io import file_io_for
from connector.iceberg.types.schemas.schema_json import to_pyiceberg


def load_static_table(location: str, properties: dict[str, str]) -> StaticTable:
    """Read the file; `properties` are those of a FileIO, the table's own win over them."""
    io = file_io_for(properties, location)
    with (
        io.new_input(location).open() as file,
        Compressor.get_compressor(location).stream_decompressor(file) as stream,
    ):
        document = orjson.loads(stream.read())
    if "schemas" in document:
        # PyIceberg knows no variants and not all defaults; only columns' names and ids matter here.
        document["schemas"] = [to_pyiceberg(schema, "string") for schema in document["schemas"]]
    metadata = TableMetadataUtil.parse_obj(document)
    io = file_io_for({**properties, **metadata.properties}, location)
    return StaticTable(("static-table", location), metadata, location, io, NoopCatalog("static-table"))
