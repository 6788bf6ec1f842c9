"""Python types <-> JSON Schema <-> validated values."""

from antiphon.shapes.annotations import describe, hints_of, name_of
from antiphon.shapes.constraints import Email, Format, Header, Url
from antiphon.shapes.form import Form, Several, form_of
from antiphon.shapes.mismatch import Mismatch
from antiphon.shapes.records import MISSING
from antiphon.shapes.shape import Shape, Signature, raw_shape, shape_of, signature_of

__all__ = [
    "MISSING",
    "Email",
    "Form",
    "Format",
    "Header",
    "Mismatch",
    "Several",
    "Shape",
    "Signature",
    "Url",
    "describe",
    "form_of",
    "hints_of",
    "name_of",
    "raw_shape",
    "shape_of",
    "signature_of",
]
