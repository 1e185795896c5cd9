"""MongoDB's envelopes -> envelopes with rows for images: documents as columns, or each as one text. No I/O.

The types of columns are found as for messages without schema; `_id` is a text (`images.extended_json.format_id`), so
that the ids of one collection may be of any type. An update that tells only what it changed becomes a patch
(`images.document_patches`), which is applied to the row before it: of the text, or of the columns it is about, beside
which it stands as the member `PATCH_COLUMN` (`fold.document_patches`).
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connector.iceberg.types.values.conversion import convert
from connector.settings.converters.event_format import DocumentMode
from connector.sink.convert.record_keys import RecordKeys
from serde.arrays import Ints, children
from serde.events.images.document_patches import format_partial_document
from serde.events.images.documents import ID_COLUMN, DocumentImage, find_date_columns, find_ids, read_documents
from serde.events.images.extended_json import parse_id
from serde.faults import RecordError
from serde.formats import make_deserializer
from serde.messages import MessageBlock

DOCUMENT_COLUMN = "document"
PATCH_REASON = (
    "the update tells only what it changed, and only tables with one row per key and no history take that; "
    "capture.mode=change_streams_update_full sends whole documents"
)
_REPLACED = frozenset({"before", "after", "updateDescription", "source"})
_INSTANT = pa.timestamp("us", "UTC")


def expand_documents(
    block: MessageBlock, mode: DocumentMode, expected: pa.StructType | None, *, patches: bool
) -> tuple[list[MessageBlock], list[RecordError]]:
    """Make envelopes with rows of a block of documents, and name the events that hold none.

    expected: the table's columns, for the types of documents; patches: whether its columns take changes of them.
    """
    images = read_documents(block.fields)
    faults = [
        RecordError(int(block.rows[at]), "VALUE_CONVERTER", reason)
        for at, one in enumerate(images)
        if (reason := _find_fault(one, mode, patches=patches)) is not None
    ]
    usable = np.array([_find_fault(one, mode, patches=patches) is None for one in images], np.bool_)
    there = np.array([one.text is not None for one in images], np.bool_)
    deletes = np.asarray(pc.equal(pc.struct_field(block.fields, "op"), "d").fill_null(False))
    blocks = []
    for image, mask in (("after", ~deletes), ("before", deletes)):
        rows = np.flatnonzero(usable & there & mask)
        for places, column, wrong in _read_images(images, rows, mode, expected):
            faults += [RecordError(int(block.rows[fault.row]), fault.stage, fault.reason) for fault in wrong]
            if len(places):
                blocks.append(_build_block(block, places, image, column))
    bare = np.flatnonzero(usable & ~there)
    if len(bare):
        blocks.append(_build_block(block, bare, "after", pa.nulls(len(bare), pa.struct([]))))
    return blocks, faults


def _find_fault(image: DocumentImage, mode: DocumentMode, *, patches: bool) -> str | None:
    if image.fault is not None:
        return image.fault
    return PATCH_REASON if image.patch and mode == "columns" and not patches else None


def _read_images(
    images: list[DocumentImage], rows: Ints, mode: DocumentMode, expected: pa.StructType | None
) -> Iterator[tuple[Ints, pa.StructArray, list[RecordError]]]:
    """Return the rows of documents, and which events they are of."""
    if not len(rows):
        return
    chosen = [images[at] for at in rows.tolist()]
    if mode == "text":
        texts = pa.array([one.text for one in chosen], pa.string())
        yield rows, pa.StructArray.from_arrays([find_ids(chosen), texts], [ID_COLUMN, DOCUMENT_COLUMN]), []
        return
    texts = pa.array([_read_text(one, expected) for one in chosen], pa.string())
    decoded = make_deserializer("json").decode(texts, "VALUE_CONVERTER", expected)
    faults = [attrs.evolve(fault, row=int(rows[fault.row])) for fault in decoded.faults]
    known = frozenset(field.name for field in expected or () if pa.types.is_string(field.type))
    for part in decoded.blocks:
        dates = find_date_columns([chosen[at] for at in part.rows]) - known
        yield rows[part.rows], _set_dates(part.fields, dates), faults
        faults = []
    if faults:
        yield np.zeros(0, np.int64), pa.nulls(0, pa.struct([])), faults


def _read_text(image: DocumentImage, expected: pa.StructType | None) -> str | None:
    return format_partial_document(image.text, expected) if image.patch and image.text is not None else image.text


def _set_dates(row: pa.StructArray, names: frozenset[str]) -> pa.StructArray:
    """Return the row with members that are dates in every document as instants; what is beyond them stays text."""
    columns = []
    for field, column in zip(row.type, children(row), strict=True):
        instants, bad = (
            convert(column, _INSTANT) if field.name in names and pa.types.is_string(field.type) else (None, None)
        )
        columns.append(column if instants is None or bad is not None else instants)
    return pa.StructArray.from_arrays(columns, names=row.type.names)


def _build_block(block: MessageBlock, places: Ints, image: str, column: pa.StructArray) -> MessageBlock:
    """Return some events of a block with these images; their collection counts as their table."""
    fields = block.fields.take(pa.array(places))
    members = {f.name: c for f, c in zip(fields.type, children(fields), strict=True) if f.name not in _REPLACED}
    members["source"] = _name_table(pc.struct_field(fields, "source"))
    members[image] = column
    documents = frozenset({f"{image}.{DOCUMENT_COLUMN}"}) if DOCUMENT_COLUMN in column.type.names else frozenset[str]()
    return MessageBlock(
        block.rows[places],
        pa.StructArray.from_arrays(list(members.values()), names=list(members)),
        "",
        None,
        {},
        documents,
    )


def _name_table(source: pa.StructArray) -> pa.StructArray:
    columns = dict(zip(source.type.names, children(source), strict=True))
    if "collection" not in columns or "table" in columns:
        return source
    columns["table"] = columns["collection"]
    return pa.StructArray.from_arrays(list(columns.values()), names=list(columns))


def name_document_keys(keys: RecordKeys) -> RecordKeys:
    """Return keys of documents with their `id` as the text of `_id`; keys of other fields as they are."""
    column = keys.columns.get("id")
    if list(keys.columns) != ["id"] or column is None or not pa.types.is_string(column.type):
        return keys
    texts = [None if text is None else parse_id(text) for text in column.to_pylist()]
    return attrs.evolve(keys, columns={ID_COLUMN: pa.array(texts, pa.string())})
