"""Questions of every kind, as the wire has them, and some that mean harm."""

EVERY = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Your name", "description": "As in your passport", "minLength": 2},
        "mail": {"type": "string", "format": "email"},
        "site": {"type": "string", "format": "uri"},
        "day": {"type": "string", "format": "date"},
        "moment": {"type": "string", "format": "date-time", "default": "2026-07-28T09:30:00+02:00"},
        "essay": {"type": "string", "maxLength": 5000},
        "seats": {"type": "integer", "minimum": 1, "maximum": 9, "default": 2},
        "price": {"type": "number", "minimum": 0.5},
        "meal": {"type": "boolean", "title": "A meal?"},
        "sure": {"type": "boolean"},
        "colour": {"type": "string", "enum": ["red", "green", "blue"], "default": "green"},
        "plan": {"type": "string", "oneOf": [{"const": "s", "title": "Small"}, {"const": "l", "title": "Large"}]},
        "extras": {
            "type": "array",
            "items": {"type": "string", "enum": ["bag", "wifi", "lounge"]},
            "minItems": 1,
            "default": ["wifi"],
        },
        "titled": {
            "type": "array",
            "items": {"anyOf": [{"const": "a", "title": "First"}, {"const": "b", "title": "Second"}]},
        },
    },
    "required": ["name", "day", "seats", "sure", "plan"],
}
EVERY_ANSWER = {
    "name": "Ada",
    "day": "2026-12-24",
    "moment": "2026-07-28T07:30:00+00:00",
    "seats": 3,
    "price": 1.5,
    "sure": False,
    "colour": "green",
    "plan": "l",
    "extras": ["wifi", "lounge"],
}
"""What a person enters who leaves the rest as it is."""


def form(message, schema=EVERY):
    return {"method": "elicitation/create", "params": {"mode": "form", "message": message, "requestedSchema": schema}}


def url(message, address):
    return {"method": "elicitation/create", "params": {"mode": "url", "message": message, "url": address}}


LOOK = url("Please sign", "https://sign.example.com/doc?id=7&x=<b>")
WRITE = {
    "method": "sampling/createMessage",
    "params": {
        "systemPrompt": "Be brief",
        "messages": [
            {"role": "user", "content": {"type": "text", "text": "What is <b>new</b>?"}},
            {"role": "user", "content": [{"type": "image", "data": "AAAA", "mimeType": "image/png"}]},
        ],
        "maxTokens": 100,
    },
}
WHERE = {"method": "roots/list"}

MARKUP = "<script>alert(1)</script><img src=https://evil.example/x onerror=alert(2)>\"'`--></form><style>*{all:unset}"
BIDI = "safe\u202egnp.exe\u2066 \u200b\u00ad\u0000\x1b[2J end"
HOSTILE = {
    "type": "object",
    "properties": {
        MARKUP: {"type": "string", "title": MARKUP, "description": BIDI, "default": MARKUP},
        "b": {"type": "string", "enum": [MARKUP, BIDI, ""], "title": BIDI},
        "c": {"type": "array", "items": {"anyOf": [{"const": MARKUP, "title": MARKUP}]}},
        "d": {"type": "string", "default": BIDI},
    },
}
