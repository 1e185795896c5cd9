"""properties of tables and files -> faults where they ask for a format that is not written."""

from __future__ import annotations

from collections.abc import Iterable

from connector.settings.configdef.option import Option, Prefix
from connector.settings.configdef.reader import ConfigReader

FORMATS = ("parquet", "avro")
_KEY = "write.format.default"
_CHOICES = {
    _KEY: FORMATS,
    # Iceberg's own default is the data files' format; a manifest says of each file what it is, so readers mind neither.
    "write.delete.format.default": ("parquet",),
    "write.avro.compression-codec": ("gzip", "zstd", "snappy", "uncompressed"),
}


def check(
    reading: ConfigReader,
    families: Iterable[Prefix],
    created: tuple[Option[str], Prefix],
    written: Prefix,
    variants: Option[bool],
) -> None:
    """Refuse formats that are not written; faults go to the reading.

    Args:
        reading: where properties come from.
        families: those with properties of tables.
        created: the option and the family that say the format of new tables.
        written: the family that wins over a table's own properties.
        variants: the option that makes variants, which are not written to Avro files.
    """
    for family in families:
        for key, choices in _CHOICES.items():
            text = reading.under(family).get(key)
            if text and text.lower() not in choices:
                named = reading.entries[family.name + key]
                shown = f"'{text}'" if named.text == text else "the value"
                reading.add_fault(named, f"{shown} is not written", f"write {' or '.join(choices)}")
    option, made = created
    chosen = {f.name + _KEY: text for f in (written, made) if (text := reading.under(f).get(_KEY))}
    key, text = next(iter(chosen.items()), (option.name, reading.get(option)))
    entry = reading.entry(variants)
    if entry and reading.get(variants) and text.lower() == "avro":
        reading.add_fault(entry, "variants are not written to Avro files", f"set {key} to parquet, or this to false")
