"""Names of files -> definitions that a registry need not have: of Google, Confluent, AWS Glue."""

from __future__ import annotations

from functools import lru_cache

from serde.protobuf.schemas.definitions import Definitions
from serde.protobuf.schemas.proto_text import add_text

_WRAPPED = ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
_GOOGLE = """
syntax = "proto3";
package google.protobuf;
message Timestamp { int64 seconds = 1; int32 nanos = 2; }
message Duration { int64 seconds = 1; int32 nanos = 2; }
message Any { string type_url = 1; bytes value = 2; }
message Empty {}
message FieldMask { repeated string paths = 1; }
message Struct { map<string, Value> fields = 1; }
message Value {
  oneof kind {
    NullValue null_value = 1; double number_value = 2; string string_value = 3; bool bool_value = 4;
    Struct struct_value = 5; ListValue list_value = 6;
  }
}
message ListValue { repeated Value values = 1; }
enum NullValue { NULL_VALUE = 0; }
""" + "\n".join(f"message {name}Value {{ {name.lower()} value = 1; }}" for name in _WRAPPED)
_GOOGLE_TYPES = """
syntax = "proto3";
package google.type;
message Date { int32 year = 1; int32 month = 2; int32 day = 3; }
message TimeOfDay { int32 hours = 1; int32 minutes = 2; int32 seconds = 3; int32 nanos = 4; }
message LatLng { double latitude = 1; double longitude = 2; }
message Money { string currency_code = 1; int64 units = 2; int32 nanos = 3; }
message Decimal { string value = 1; }
"""
_CONFLUENT_TYPES = """
syntax = "proto3";
package confluent.type;
message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }
message Variant { bytes metadata = 1; bytes value = 2; }
"""
_GLUE_TYPES = """
syntax = "proto3";
package additionalTypes;
message Decimal { int64 units = 1; int32 fraction = 2; uint32 precision = 3; int32 scale = 4; }
"""
WRAPPERS = frozenset(f"google.protobuf.{name}Value" for name in _WRAPPED)
"""Messages that are one value which may be null."""

TIMESTAMP = "google.protobuf.Timestamp"
DATE, TIME_OF_DAY, DECIMAL = "google.type.Date", "google.type.TimeOfDay", "confluent.type.Decimal"


@lru_cache(maxsize=1)
def known_definitions() -> Definitions:
    """Return the definitions, parsed once per process. Cost: a tenth of a second."""
    definitions = Definitions()
    for text in (_GOOGLE, _GOOGLE_TYPES, _CONFLUENT_TYPES, _GLUE_TYPES):
        add_text(text, definitions)
    return definitions
