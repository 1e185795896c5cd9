"""Descriptions of files, as tasks write them -> Iceberg's content files, which its commits take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import orjson

from connector.iceberg.catalog.file_description import FileDescription
from connector.iceberg.java import Driver, iterate, jvm
from connector.iceberg.types.values.single_values import parse_non_finite


def make_content_files(driver: Driver, specs: Any, descriptions: Iterable[FileDescription]) -> Iterator[Any]:
    """Yield the content files; `specs` are Java's partition specs of the table, by id."""
    iceberg = jvm(driver).org.apache.iceberg
    parser, mapper = iceberg.ContentFileParser, iceberg.util.JsonUtil.mapper()
    for description in descriptions:
        document = mapper.readTree(description.json.decode())
        if b'"NaN"' in description.json or b'Infinity"' in description.json:
            _set_non_finite(document, orjson.loads(description.json), specs, mapper)
        yield parser.fromJson(document, specs)


def _set_non_finite(document: Any, description: dict[str, Any], specs: Any, mapper: Any) -> None:
    """Put numbers in the place of their names in a file's partition: Java reads them, but not from text."""
    numbers = mapper.getNodeFactory()
    fields = specs.get(description["spec-id"]).partitionType().fields()
    for place, (field, value) in enumerate(zip(iterate(fields), description["partition"], strict=True)):
        number = parse_non_finite(str(field.type().typeId()), value)
        if number is not None:
            document.get("partition").set(place, numbers.numberNode(number))
