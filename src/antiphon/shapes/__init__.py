"""Python types <-> JSON Schema <-> validated values."""

from antiphon.shapes.form import Form, Several, form_of
from antiphon.shapes.schema import Email, Format, Header, Mismatch, Shape, Url, raw_shape, shape_of
from antiphon.shapes.signature import MISSING, Parameter, Signature, describe, hints_of, signature_of

__all__ = [
    "MISSING",
    "Email",
    "Form",
    "Format",
    "Header",
    "Mismatch",
    "Parameter",
    "Several",
    "Shape",
    "Signature",
    "Url",
    "describe",
    "form_of",
    "hints_of",
    "raw_shape",
    "shape_of",
    "signature_of",
]
