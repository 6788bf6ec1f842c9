"""A user's own JSON Schema as a shape."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from antiphon.shapes.mismatch import Mismatch
from antiphon.shapes.schema import encode
from antiphon.shapes.tree import subschemas

__all__ = ["MAX_DEPTH", "MAX_SUBSCHEMAS", "RawShape", "raw_shape"]

# "Implementations SHOULD apply reasonable bounds" (basic, Composition-Keyword Resource Use).
MAX_DEPTH = 64
MAX_SUBSCHEMAS = 10_000

_IN_PLACE = frozenset({"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies"})
