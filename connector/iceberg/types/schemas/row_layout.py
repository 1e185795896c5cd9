"""A schema in Iceberg's JSON and a key -> how the rows of a table, or documents of an index, look on their way."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from functools import cached_property, lru_cache
from typing import Any

import attrs
import orjson
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StructType

from connector.iceberg.types.dotted_names import Path
from connector.iceberg.types.nested_columns import find_field, find_path
from connector.iceberg.types.required_values import requires_within
from connector.iceberg.types.schemas.arrow_types import make_nullable, to_arrow_schema
from connector.iceberg.types.schemas.schema_json import VARIANT_TYPE, iter_fields, to_pyiceberg
from serde.arrays import Mask

FieldFilter = Callable[[str, NestedField], bool]


@attrs.frozen(slots=False)
class RowLayout:
    """The columns of rows, and what tells them apart; all that steps before a destination need to know of it.

    The schema travels as JSON, so that a pickle is small and needs no JVM on the other side. `id_columns` win over its
    identifier fields.
    """

    name: str
    schema_json: str
    id_columns: tuple[str, ...] = ()

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what the other side reads from the JSON itself."""
        return {field.name: getattr(self, field.name) for field in attrs.fields(type(self))}

    @property
    def conversion(self) -> Hashable:
        """What decides how rows are made, equal for layouts of which one may stand for the other."""
        return type(self), self.schema_json, self.id_columns

    @cached_property
    def schema(self) -> Schema:
        """The Iceberg schema; variant columns are text, as they are on their way."""
        return parse_schema(self.schema_json)

    @property
    def variants(self) -> frozenset[str]:
        """The variant columns; what is nested below another column is told by its path."""
        return _parse_variants(self.schema_json)

    @property
    def text_columns(self) -> frozenset[str]:
        """The columns that are text, variants not among them."""
        return _parse_text_columns(self.schema_json)

    @property
    def instant_ns_columns(self) -> frozenset[str]:
        """The columns of instants in nanoseconds."""
        return _parse_instant_ns_columns(self.schema_json)

    @property
    def plain_paths(self) -> frozenset[str]:
        """The columns, and fields in structs by dotted path, that hold whole numbers or structs, or lists of these."""
        return _parse_paths(self.schema_json)[0]

    @property
    def typed_paths(self) -> frozenset[str]:
        """The columns, and fields in structs by dotted path, that hold neither."""
        return _parse_paths(self.schema_json)[1]

    @cached_property
    def columns(self) -> pa.Schema:
        """The Arrow schema of data files, with field ids."""
        return _parse_columns(self.schema_json)

    @cached_property
    def rows(self) -> pa.Schema:
        """The same, none of them required: rows on their way may still lack what the table requires."""
        return _parse_nullable_columns(self.schema_json)

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """The names of what tells rows apart, in schema order, fields of structs dotted; empty without a key.

        A configured column that is a struct stands for all fields within it.
        """
        if self.id_columns:
            return tuple(_iter_key_names(self.schema.fields, lambda name, _: name in self.id_columns))
        ids = self.schema.identifier_field_ids
        return tuple(_iter_key_names(self.schema.fields, lambda _, field: field.field_id in ids))

    @cached_property
    def key_fields(self) -> tuple[pa.Field, ...]:
        """The same as fields of flat columns (see `nested_columns.find_field`)."""
        return tuple(find_field(self.columns, name) for name in self.keys)

    @cached_property
    def key_paths(self) -> tuple[Path, ...]:
        """The same by the names from the top on."""
        return tuple(find_path(self.columns, name) or (name,) for name in self.keys)

    @cached_property
    def key_columns(self) -> frozenset[str]:
        """The columns that are a key, or have one within them."""
        return frozenset(path[0] for path in self.key_paths)

    @cached_property
    def required(self) -> tuple[str, ...]:
        """The required columns that are neither a key nor an identifier field, nor have one within them."""
        return tuple(f.name for f in self.columns if not f.nullable and (f.name,) not in self.fixed_paths)

    @cached_property
    def nested_required(self) -> tuple[pa.Field, ...]:
        """The columns that have required fields within, whatever is nested there."""
        return tuple(field for field in self.columns if requires_within(field.type))

    @cached_property
    def fixed_paths(self) -> frozenset[Path]:
        """What Iceberg or the key wants required: keys, identifier fields and the structs around them."""
        ids = frozenset(self.schema.identifier_field_ids)
        paths = {*self.key_paths, *_iter_paths(self.schema.fields, ids)}
        return frozenset(path[: depth + 1] for path in paths for depth in range(len(path)))

    def find_unwritable_values(self, column: pa.Array) -> tuple[Mask, str] | None:  # noqa: ARG002 - no files, no limits
        """Mark the rows whose value of a column cannot be written, and say why; None where all can."""
        return None


def _iter_key_names(fields: Iterable[NestedField], chosen: FieldFilter, prefix: str = "") -> Iterator[str]:
    for field in fields:
        name = prefix + field.name
        if isinstance(field.field_type, StructType):
            inside = _accept_any if chosen(name, field) else chosen
            yield from _iter_key_names(field.field_type.fields, inside, f"{name}.")
        elif chosen(name, field):
            yield name


def _iter_paths(fields: Iterable[NestedField], ids: Collection[int], around: Path = ()) -> Iterator[Path]:
    for field in fields:
        path = (*around, field.name)
        if field.field_id in ids:
            yield path
        if isinstance(field.field_type, StructType):
            yield from _iter_paths(field.field_type.fields, ids, path)


def _accept_any(*_: object) -> bool:
    return True


# Tasks get their plan again with every batch, of tables that stay the same: what JSON says is read once per process.


@lru_cache(maxsize=1024)
def parse_schema(schema_json: str) -> Schema:
    """Read a schema from Iceberg's JSON, with text for variants and without defaults."""
    return Schema.model_validate(to_pyiceberg(orjson.loads(schema_json), "string"))


@lru_cache(maxsize=1024)
def _parse_variants(schema_json: str) -> frozenset[str]:
    return frozenset(name for name, field in iter_fields(orjson.loads(schema_json)) if field["type"] == VARIANT_TYPE)


@lru_cache(maxsize=1024)
def _parse_text_columns(schema_json: str) -> frozenset[str]:
    columns, variants = _parse_columns(schema_json), _parse_variants(schema_json)
    return frozenset(field.name for field in columns if pa.types.is_string(field.type)) - variants


@lru_cache(maxsize=1024)
def _parse_instant_ns_columns(schema_json: str) -> frozenset[str]:
    return frozenset(field.name for field in _parse_columns(schema_json) if field.type == pa.timestamp("ns", "UTC"))


@lru_cache(maxsize=1024)
def _parse_paths(schema_json: str) -> tuple[frozenset[str], frozenset[str]]:
    found = [path for field in _parse_columns(schema_json) for path in _iter_value_paths(field.type, field.name)]
    plain, typed = (frozenset(path for path, is_plain in found if is_plain is wanted) for wanted in (True, False))
    return plain, typed


def _iter_value_paths(kind: pa.DataType, path: str) -> Iterator[tuple[str, bool]]:
    """Yield a column and the fields in its structs, each with whether its values are whole numbers or structs."""
    types = pa.types
    while types.is_list(kind) or types.is_large_list(kind) or types.is_map(kind):
        kind = kind.item_type if types.is_map(kind) else kind.value_type
    yield path, bool(types.is_integer(kind) or types.is_struct(kind))
    for field in kind if types.is_struct(kind) else ():
        yield from _iter_value_paths(field.type, f"{path}.{field.name}")


@lru_cache(maxsize=1024)
def _parse_columns(schema_json: str) -> pa.Schema:
    return to_arrow_schema(parse_schema(schema_json))


@lru_cache(maxsize=1024)
def _parse_nullable_columns(schema_json: str) -> pa.Schema:
    return make_nullable(_parse_columns(schema_json))
