"""Partial updates of documents -> complete rows, made from the row of the key before. Pure rules.

MongoDB's updates without their document (`capture.mode=change_streams`) are rows with only the members that were set,
and the text of the change beside them (`images.document_patches`). Patches without a row are joined into one.

Cost: Python per such change, and only for the columns that it names. Rows are made of changes that somebody needs: a
document that changes often would else be made as often as it changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from connector.iceberg.types.values.conversion import convert, schemaless_type
from connector.iceberg.types.values.variants import to_json_text
from connector.sink.model.change_rows import ChangeBatch, concat_patches
from serde.arrays import Ints, Mask, choose_values, place_others, valid_mask
from serde.events.images.document_patches import change_document, find_members, find_null_columns, join_patches
from serde.formats import make_deserializer

_VALUE = "value"


def apply_in_batch(
    parts: Sequence[ChangeBatch], giving: Mask, sequence: Ints, starts: Ints, variants: frozenset[str], needed: Mask
) -> list[ChangeBatch]:
    """Apply each patch to the last row of its key before it, if the batch has one.

    Args:
        parts: changes of a table.
        giving: which of them, counted through the parts, have a row.
        sequence, starts: all of them sorted by key and place, and where in that the life of each row begins.
        variants: the columns whose texts are JSON.
        needed: which of them, counted as `giving`, are looked at later; those that change documents stay otherwise
            what they are.
    """
    patch_texts = concat_patches(parts)
    if patch_texts is None or patch_texts.null_count == len(patch_texts):
        return list(parts)
    rows = pa.concat_batches([part.rows for part in parts])
    if (nulls := _find_row_patches(patch_texts)) is not None:
        return _split(parts, *_fill_rows(rows, patch_texts, nulls, giving, sequence, starts))
    texts = patch_texts.to_pylist()
    made: dict[int, tuple[int, str]] = {}
    joined: dict[int, str | None] = {}
    for root, chain in find_chains(valid_mask(patch_texts), giving, sequence, starts, needed).items():
        for end, own in enumerate(chain, 1):
            if needed[own]:
                patch = join_patches([texts[at] for at in chain[:end]])
                made[own] = root, patch
                # What stands at the beginning may be no whole row itself.
                joined[own] = None if texts[root] is None else join_patches([texts[root], patch])
    for own, text in joined.items():
        texts[own] = text
    return _split(parts, _replace_rows(rows, made, variants), pa.array(texts, pa.string()))


def find_chains(patched: Mask, giving: Mask, sequence: Ints, starts: Ints, needed: Mask) -> Mapping[int, Sequence[int]]:
    """Return the changes that follow one another, up to the last that is needed, by the row that they go back to.

    Args:
        patched: which changes have a patch in place of a row.
        giving, sequence, starts, needed: as in `apply_in_batch`.
    """
    places = np.arange(len(sequence))
    last = np.maximum.accumulate(np.where(giving[sequence], places, -1))
    before = np.append(-1, last[:-1])
    linked = patched[sequence] & giving[sequence] & (before >= starts)
    root = np.maximum.accumulate(np.where(giving[sequence] & ~linked, places, -1))
    wanted = np.full(len(sequence), -1)
    ends = np.flatnonzero(linked & needed[sequence])
    np.maximum.at(wanted, root[ends], ends)
    chains: dict[int, list[int]] = {}
    for at in np.flatnonzero(linked & (places <= wanted[root])).tolist():
        chains.setdefault(int(sequence[root[at]]), []).append(int(sequence[at]))
    return chains


def _find_row_patches(patches: pa.StringArray) -> Mapping[str, frozenset[str]] | None:
    """Return the columns that each patch sets to null; None if one of them belongs to a document."""
    nulls_by_patch = {text: find_null_columns(text) for text in pc.unique(patches.drop_null()).to_pylist()}
    known = {text: nulls for text, nulls in nulls_by_patch.items() if nulls is not None}
    return known if len(known) == len(nulls_by_patch) else None


def _fill_rows(
    rows: pa.RecordBatch,
    patches: pa.StringArray,
    nulls: Mapping[str, frozenset[str]],
    giving: Mask,
    sequence: Ints,
    starts: Ints,
) -> tuple[pa.RecordBatch, pa.StringArray]:
    """Return rows completed from the last row of their life before them, and the patches that remain.

    Patches remain if their life has no complete row in the batch; their rows list what was set to null.
    """
    patched, has_row = np.asarray(patches.is_valid())[sequence] & giving[sequence], giving[sequence]
    order, place = np.flatnonzero(patched), np.arange(len(sequence))
    coded = patches.dictionary_encode()
    codes = np.asarray(coded.indices.fill_null(-1), np.int64)[sequence]
    forms = [nulls[text] for text in coded.dictionary.to_pylist()]
    columns = []
    for field, column in zip(rows.schema, rows.columns, strict=True):
        unset = np.array([*(field.name in form for form in forms), False], np.bool_)[codes]
        gives = has_row & (~patched | valid_mask(column)[sequence] | unset)
        last = np.maximum.accumulate(np.where(gives, place, -1))
        sources = np.arange(len(rows))
        sources[sequence[order]] = sequence[np.where(last >= starts, last, place)[order]]
        columns.append(column.take(pa.array(sources)))
    whole = np.maximum.accumulate(np.where(has_row & ~patched, place, -1))
    texts = patches.to_pylist()
    open_forms: dict[int, dict[str, str]] = {}
    for at in order.tolist():
        own, start = int(sequence[at]), int(starts[at])
        if whole[at] >= start:
            texts[own] = None
            continue
        # By the last of the forms so far: all of them as one.
        forms_so_far = open_forms.setdefault(start, {})
        if texts[own] not in forms_so_far:
            forms_so_far[texts[own]] = join_patches([*forms_so_far, texts[own]])
        texts[own] = next(reversed(forms_so_far.values()))
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema), pa.array(texts, pa.string())


def _replace_rows(
    rows: pa.RecordBatch, made: Mapping[int, tuple[int, str]], variants: frozenset[str]
) -> pa.RecordBatch:
    """Replace rows by what their patches, all as one, make of others (own row -> other row, patch)."""
    if not made:
        return rows
    which, (bases, patches) = list(made), zip(*made.values(), strict=True)
    patched = patch_rows(rows.take(pa.array(which)), rows.take(pa.array(bases)), patches, variants)
    return pa.concat_batches([rows, patched]).take(place_others(len(rows), which))


def _split(parts: Sequence[ChangeBatch], rows: pa.RecordBatch, patches: pa.StringArray) -> list[ChangeBatch]:
    result, start = [], 0
    for part in parts:
        own = None if part.patches is None else patches.slice(start, len(part))
        result.append(attrs.evolve(part, rows=rows.slice(start, len(part)), patches=own))
        start += len(part)
    return result


def patch_rows(
    incoming: pa.RecordBatch, base: pa.RecordBatch, patches: Sequence[str], variants: frozenset[str]
) -> pa.RecordBatch:
    """Return the rows that result from applying patches to other rows, aligned.

    Args:
        incoming: rows with the values that the patches set, and the columns beside a document; non-null values win.
        base: the rows before, under the same columns.
        patches: all changes of each row.
        variants: the columns whose texts are JSON.
    """
    columns = {
        field.name: choose_values(new, old, ~valid_mask(new))
        for field, new, old in zip(incoming.schema, incoming.columns, base.columns, strict=True)
    }
    named: dict[str, list[int]] = {}
    for place, patch in enumerate(patches):
        for name in find_members(patch) & columns.keys():
            named.setdefault(name, []).append(place)
    for name, places in named.items():
        at = pa.array(places)
        base_values = base.column(name).take(at)
        kept = base_values if name not in variants else base_values.cast(pa.string())
        changed = _change_column(name, kept, [patches[place] for place in places], is_json=name in variants)
        incoming_values = incoming.column(name).take(at)
        values = _convert(changed, incoming_values, incoming.schema.field(name).type, is_json=name in variants)
        columns[name] = pa.concat_arrays([columns[name], values]).take(place_others(len(incoming), places))
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=incoming.schema)


def _change_column(name: str, base_values: pa.Array, patches: Sequence[str], *, is_json: bool) -> list[Any]:
    """Return a member's JSON value after the change."""
    changed = []
    for value, patch in zip(_read_values(base_values, is_json=is_json), patches, strict=True):
        document = {} if value is None else {name: value}
        change_document(document, patch)
        changed.append(document.get(name))
    return changed


def _read_values(column: pa.Array, *, is_json: bool) -> Iterator[Any]:
    if pa.types.is_string(column.type) and not is_json:
        yield from column.to_pylist()
        return
    for text in to_json_text(column, keep_nulls=False).to_pylist():
        try:
            yield None if text is None else orjson.loads(text)
        except ValueError:
            yield text


def _convert(values: list[Any], fallback: pa.Array, kind: pa.DataType, *, is_json: bool) -> pa.Array:
    """Return JSON values in a column's type; one that does not fit is replaced by the value of the change itself.

    It does not fit if the row before was no such document.
    """
    if is_json:
        texts = (v if v is None or isinstance(v, str) else orjson.dumps(v).decode() for v in values)
        return pa.array(list(texts), pa.string()).cast(kind)
    present = [place for place, value in enumerate(values) if value is not None]
    parts, places = [fallback], np.full(len(values), -1)
    places[present] = present
    texts = pa.array([orjson.dumps({_VALUE: values[place]}) for place in present], pa.binary())
    decoded = make_deserializer("json").decode(texts, "VALUE_CONVERTER", pa.struct([(_VALUE, schemaless_type(kind))]))
    for block in decoded.blocks:
        converted, bad = convert(pc.struct_field(block.fields, _VALUE), kind)
        good = np.ones(len(converted), np.bool_) if bad is None else ~bad
        places[np.array(present)[block.rows[good]]] = sum(map(len, parts)) + np.flatnonzero(good)
        parts.append(converted)
    return pa.concat_arrays(parts).take(pa.array(places, mask=places < 0))
