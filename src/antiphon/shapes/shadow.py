"""A record class read through a shadow: a Struct with the translated field types, from which the real one is built."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET

from antiphon.shapes.mismatch import Mismatch
from antiphon.shapes.reader import Read, Reader
from antiphon.shapes.records import Record

__all__ = ["shadow_of"]


def shadow_of(record: Record, types: list[Any], schema: Mapping[str, object]) -> Read:
    """A reader of the record, given its fields' types in msgspec's terms."""
    slots = {f"f{index}": field for index, field in enumerate(record.fields)}
    shadow = msgspec.defstruct(
        record.cls.__name__,
        [
            (slot, type_) if field.required else (slot, type_, UNSET)
            for (slot, field), type_ in zip(slots.items(), types, strict=True)
        ],
        rename={slot: field.wire for slot, field in slots.items()},
        kw_only=not record.as_array,
        array_like=record.as_array,
        forbid_unknown_fields=record.closed or issubclass(record.cls, tuple),
        tag_field=record.tag[0] if record.tag else None,
        tag=record.tag[1] if record.tag else None,
    )
    reader = Reader(shadow, schema)

    def read(value: object, lax: bool) -> object:
        shape = reader.read(value, lax)
        values = {field.name: getattr(shape, slot) for slot, field in slots.items()}
        try:
            return record.build(**{name: item for name, item in values.items() if item is not UNSET})
        except (TypeError, ValueError) as problem:  # what its __post_init__ has to say
            raise Mismatch(str(problem)) from problem

    return read
