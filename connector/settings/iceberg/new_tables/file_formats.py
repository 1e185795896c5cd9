"""properties of tables and files -> faults where they ask for a format that is not written."""

from __future__ import annotations

from collections.abc import Iterable

from connector.settings.configdef.option import Option, Prefix
from connector.settings.configdef.reader import ConfigReader

FORMATS = ("parquet", "avro", "orc")
DEFAULT_FORMAT_PROPERTY = "write.format.default"
_CHOICES = {
    DEFAULT_FORMAT_PROPERTY: FORMATS,
    # Iceberg's own default is the data files' format; a manifest says of each file what it is, so readers mind neither.
    "write.delete.format.default": ("parquet",),
    "write.avro.compression-codec": ("gzip", "zstd", "snappy", "uncompressed"),
    "write.orc.compression-codec": ("zlib", "zstd", "snappy", "lz4", "none"),
    "write.orc.compression-strategy": ("speed", "compression"),
}


def check(
    reader: ConfigReader,
    families: Iterable[Prefix],
    created: tuple[Option[str], Prefix],
    written: Prefix,
    variants: Option[bool],
) -> None:
    """Refuse formats that are not written; faults go to the reader.

    Args:
        reader: where properties come from.
        families: those with properties of tables.
        created: the option and the family that say the format of new tables.
        written: the family that wins over a table's own properties.
        variants: the option that makes variants, which are written to Parquet files only.
    """
    for family in families:
        for key, choices in _CHOICES.items():
            text = reader.under(family).get(key)
            if text and text.lower() not in choices:
                named = reader.entries[family.name + key]
                shown = f"'{text}'" if named.text == text else "the value"
                reader.add_fault(named, f"{shown} is not written", f"write {' or '.join(choices)}")
    option, create_props = created
    chosen = {
        f.name + DEFAULT_FORMAT_PROPERTY: text
        for f in (written, create_props)
        if (text := reader.under(f).get(DEFAULT_FORMAT_PROPERTY))
    }
    key, text = next(iter(chosen.items()), (option.name, reader.get(option)))
    entry = reader.entry(variants)
    if entry and reader.get(variants) and text.lower() != "parquet":
        reader.add_fault(entry, "variants are written to Parquet files only", f"set {key} to parquet, or this to false")
