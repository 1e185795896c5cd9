"""Record keys -> identifier columns of a table, a column at a time. Runs on executors; no I/O.

The key of a record says which row it is about; a record whose key cannot be used is a fault, not a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connector.iceberg.types.nested_columns import find_path, leaf_names, read_path, set_column
from connector.iceberg.types.schemas.schema_evolution import evolve
from connector.iceberg.types.values.conversion import convert
from connector.sink.convert.columns.base64_decimals import find_base64
from connector.sink.convert.columns.field_matching import find_case_renames
from connector.sink.convert.number_keys import unify_numbers
from connector.sink.model.plan import TablePlan
from serde.arrays import Ints, Mask, children, valid_mask, with_columns
from serde.connect.primitive_keys import mark_earlier
from serde.events.images.cells import holds_cells, strip_cells, unpack_cells
from serde.faults import RecordError
from serde.messages import DecodedMessages, MessageBlock

_AMBIGUOUS_KEY = "key: a text without a point may be the base64 of a decimal; have keys written with their schema"


@attrs.frozen(eq=False)
class RecordKeys:
    """Decoded record keys: per field a column over the whole run, null where the key has none."""

    columns: Mapping[str, pa.Array]
    usable: Mask
    faults: tuple[RecordError, ...]
    declared: Mapping[str, Mask] = attrs.field(factory=dict)
    """Of fields that are null in some keys: the rows whose schema has them."""

    def has_only_faults(self, rows: Ints) -> bool:
        """Tell whether none of these rows has a key that could be read."""
        return bool(self.faults) and bool(np.isin(rows, [fault.row for fault in self.faults]).all())

    def faults_of(self, rows: Ints) -> list[RecordError]:
        """Return the faults of these rows."""
        wanted = set(rows.tolist()) if self.faults else set()
        return [fault for fault in self.faults if fault.row in wanted]

    def match_case(self, names: Iterable[str]) -> RecordKeys:
        """Return the keys with fields by those names that differ from them in case only.

        Of fields that differ from one another in case only each key has the first that it gives; another type than the
        first field's becomes that, or no value.
        """
        exact = set(names)
        wanted = find_case_renames(self.columns, exact)
        spelled: dict[str, str] = {}
        columns: dict[str, pa.Array] = {}
        for given, column in sorted(self.columns.items(), key=lambda item: item[0] not in exact):
            name = wanted.get(given, given)
            first = spelled.setdefault(name.lower(), name)
            if first in columns:
                column = pc.coalesce(columns[first], convert(column, columns[first].type)[0])  # noqa: PLW2901
            columns[first] = column
        return attrs.evolve(self, columns=columns)

    def of(self, name: str) -> pa.Array | None:
        """Return a key's column: a field of that name, or one within structs; None where no key has it."""
        flat = self.columns.get(name)
        if "." not in name or (flat is not None and flat.null_count < len(flat)):
            return flat
        path = find_path((field for field in self.type if field.name != name), name)
        return flat if path is None else read_path(self.columns[path[0]], path[1:])

    def type_of(self, rows: Ints) -> pa.StructType:
        """Return the fields that the keys of these rows have: others in the run are of other tables, or of no row.

        A field that is null in all of them is one if their schema says so.
        """
        places = pa.array(rows)
        fields = [
            field
            for field in self.type
            if self.columns[field.name].take(places).null_count < len(rows)
            or (field.name in self.declared and self.declared[field.name][rows].any())
        ]
        return pa.struct(fields or list(self.type))

    @property
    def row(self) -> pa.StructArray:
        """The columns as one."""
        return pa.StructArray.from_arrays(list(self.columns.values()), fields=list(self.type))

    @property
    def type(self) -> pa.StructType:
        """The key's fields."""
        return pa.struct([pa.field(name, column.type) for name, column in self.columns.items()])


def key_type(table: TablePlan | None) -> pa.StructType | None:
    """Return the types that a table expects of its keys, under their columns' earlier names too; None without one."""
    if table is None:
        return None
    known = {field.name: field for field in table.layout.key_fields}
    earlier = [(old, now) for old, now in table.renames.items() if now in known and old not in known]
    return pa.struct([*known.values(), *(mark_earlier(known[now].with_name(old)) for old, now in earlier)])


def reject_base64_keys(
    decoded: DecodedMessages, known: pa.StructType | None, *, any_case: bool = False
) -> DecodedMessages:
    """Return decoded keys without those that may be other numbers than they look like, which are faults.

    known: the types that the table expects, by the names of its columns (in `any_case`), dotted within structs. A key
    without schema tells nothing but its text.
    """
    blocks, faults = [], list(decoded.faults)
    for block in decoded.blocks:
        suspect = None if block.schema_id or block.optional else _find_suspects(block, known or (), any_case=any_case)
        if suspect is None:
            blocks.append(block)
            continue
        faults += [RecordError(int(row), "KEY_CONVERTER", _AMBIGUOUS_KEY) for row in block.rows[suspect]]
        kept = attrs.evolve(block, rows=block.rows[~suspect], fields=block.fields.filter(pa.array(~suspect)))
        blocks += [kept] if len(kept.rows) else []
    return attrs.evolve(decoded, blocks=tuple(blocks), faults=tuple(sorted(faults, key=lambda fault: fault.row)))


def _find_suspects(block: MessageBlock, fields: Iterable[pa.Field], *, any_case: bool) -> Mask | None:
    wanted = {field.name: field.type for field in fields if _has_decimals(field.type)}
    tops = {top for name in wanted for top in (name, name.partition(".")[0])}
    by_case = {top.lower(): top for top in tops} if any_case else {}
    masks = []
    for given, column in zip(block.fields.type.names, children(block.fields), strict=True) if wanted else ():
        field = pa.field(given if given in tops else by_case.get(given.lower(), given), column.type)
        paths = ((find_path([field], name), kind) for name, kind in wanted.items())
        masks += [find_base64(read_path(column, path[1:]), kind) for path, kind in paths if path]
    found = [mask for mask in masks if mask is not None]
    return np.logical_or.reduce(found) if found else None


def _has_decimals(kind: pa.DataType) -> bool:
    return pa.types.is_decimal(kind) or pa.types.is_nested(kind)


def align_record_keys(decoded: DecodedMessages, length: int, known: pa.StructType | None = None) -> RecordKeys:
    """Lay decoded keys out over a run of `length` records; `known` are the types that keys of several forms become."""
    decoded = attrs.evolve(decoded, blocks=tuple(map(_unify_numbers, map(_unpack_cells, decoded.blocks))))
    usable = np.zeros(length, np.bool_)
    names = dict.fromkeys(field.name for block in decoded.blocks for field in block.fields.type)
    for block in decoded.blocks:
        usable[block.rows] = True
    columns, faults = {}, list(decoded.faults)
    for name in names:
        columns[name], fractions = _drop_fractions(_align_field(name, decoded, length, known))
        reason = f"key field {name}: a number that is not whole identifies no row"
        faults += [RecordError(int(row), "KEY_CONVERTER", reason) for row in fractions]
        usable[fractions] = False
    return RecordKeys(columns, usable, tuple(faults), _find_declared(decoded, length))


def _find_declared(decoded: DecodedMessages, length: int) -> dict[str, Mask]:
    """Mark the rows whose key has a field by its schema, for fields that are null in some."""
    declared: dict[str, Mask] = {}
    for block in decoded.blocks:
        for field, column in zip(block.fields.type, children(block.fields) if block.optional else (), strict=False):
            if column.null_count:
                declared.setdefault(field.name, np.zeros(length, np.bool_))[block.rows] = True
    return declared


def _unpack_cells(block: MessageBlock) -> MessageBlock:
    if not holds_cells(block.fields.type):
        return block
    return attrs.evolve(block, fields=unpack_cells(block.fields), numbers=strip_cells(block.numbers))


def _unify_numbers(block: MessageBlock) -> MessageBlock:
    """Return keys whose equal numbers are the same text, whatever their scale: rows are found by it."""
    if not block.numbers:
        return block
    columns = dict(zip(block.fields.type.names, children(block.fields), strict=True))
    unify_numbers(columns, block.numbers)
    return attrs.evolve(block, fields=with_columns(block.fields, columns))


def _drop_fractions(column: pa.Array) -> tuple[pa.Array, Ints]:
    """Return a key column without fractions (JSON does not tell 1 from 1.0), and the rows that had one."""
    if pa.types.is_struct(column.type) and column.type.num_fields:
        parts, fractions = zip(*map(_drop_fractions, children(column)), strict=True)
        fields = [field.with_type(part.type) for field, part in zip(column.type, parts, strict=True)]
        whole = pa.StructArray.from_arrays(list(parts), fields=fields, mask=pc.is_null(column))
        return whole, np.unique(np.concatenate(fractions))
    if not pa.types.is_floating(column.type):
        return column, np.zeros(0, np.int64)
    whole, bad = convert(column, pa.int64())
    return whole, np.flatnonzero(bad) if bad is not None else np.zeros(0, np.int64)


def _align_field(name: str, decoded: DecodedMessages, length: int, known: pa.StructType | None) -> pa.Array:
    """Lay one key field of all blocks out over the run."""
    having = [block for block in decoded.blocks if block.fields.type.get_field_index(name) >= 0]
    if len(having) == 1 and len(having[0].rows) == length:
        return pc.struct_field(having[0].fields, name)
    kind = _common_type(
        name, [block.fields.type.field(name).type for block in sorted(having, key=_negative_size)], known
    )
    joined = pa.concat_arrays([convert(pc.struct_field(block.fields, name), kind)[0] for block in having])
    place = np.full(length, -1, np.int64)
    place[np.concatenate([block.rows for block in having])] = np.arange(len(joined))
    return joined.take(pa.array(place, mask=place < 0))


def _negative_size(block: MessageBlock) -> int:
    return -len(block.rows)


def _common_type(name: str, kinds: Sequence[pa.DataType], known: pa.StructType | None) -> pa.DataType:
    """Return the type of keys that came in several: the table's, else that of most, as far as it can grow."""
    if len(set(kinds)) > 1 and known is not None and known.get_field_index(name) >= 0:
        return known.field(name).type
    shapes = [pa.struct([pa.field(name, kind)]) for kind in kinds]
    return reduce(lambda table, shape: evolve(table, shape, add=True), shapes, pa.schema(shapes[0])).field(0).type


def set_key_columns(columns: dict[str, pa.Array], rows: Ints, keys: RecordKeys, table: TablePlan) -> list[RecordError]:
    """Set the identifier columns from the record key; rows whose key is missing or does not fit are faults."""
    faults = keys.faults_of(rows)
    absent = rows[~keys.usable[rows]]
    every = len(rows) == len(keys.usable) and bool((np.diff(rows) > 0).all())
    faults += [RecordError(int(row), "TASK_PUT", "the record has no key, and the table has one") for row in absent]
    for field, path in zip(table.layout.key_fields, table.layout.key_paths, strict=True):
        name, kind = field.name, field.type
        column = keys.of(name)
        if column is None:
            values = pa.nulls(len(rows), kind)
        else:
            values, bad = convert(column if every else column.take(pa.array(rows)), kind)
            if bad is not None:
                reason = f"key field {name}: a value of type {column.type} does not fit the table's {kind}"
                faults += [RecordError(int(row), "TASK_PUT", reason) for row in rows[bad]]
        reason = f"the record's key has no {name}, an identifier field of {table.layout.name}"
        empty = np.asarray(values.is_null())
        faults += [RecordError(int(row), "TASK_PUT", reason) for row in rows[empty]]
        set_column(columns, path, values)
    if not table.key_configured:
        clean = rows[~np.isin(rows, [fault.row for fault in faults])] if faults else rows
        faults += _find_other_fields(clean, keys, table)
    return faults


def _find_other_fields(rows: Ints, keys: RecordKeys, table: TablePlan) -> list[RecordError]:
    """Return a fault for each row whose key has a field that the table has none for: such rows would be one."""
    layout, faults = table.layout, []
    known = {*layout.keys, *(name for name in layout.key_columns if not _is_struct(keys.columns.get(name)))}
    for field in keys.type:
        for name in leaf_names(field.type, field.name):
            if name in known:
                continue
            path = () if name == field.name else (find_path([field], name) or (field.name,))[1:]
            given = valid_mask(read_path(keys.columns[field.name], path))[rows]
            reason = (
                f"the record's key has a field {name}, and {layout.name} tells rows apart without it: create a table "
                "with the new key, or name the key's columns (primary.key.fields)"
            )
            faults += [RecordError(int(row), "TASK_PUT", reason) for row in rows[given]]
    return faults


def _is_struct(column: pa.Array | None) -> bool:
    return column is not None and pa.types.is_struct(column.type)
