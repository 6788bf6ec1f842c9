"""A browser's PNG with fewer colours: a screenshot of text needs no more than 256."""

import struct
import zlib
from collections import Counter


def with_palette(png: bytes) -> bytes:
    """Return a browser's PNG with its 256 commonest colours, in a third of the bytes."""
    chunks, at = {}, 8
    while at < len(png):
        size, kind = struct.unpack_from(">I4s", png, at)
        chunks[kind] = chunks.get(kind, b"") + png[at + 8 : at + 8 + size]
        at += size + 12
    width, height, _, colours = struct.unpack_from(">IIBB", chunks[b"IHDR"])
    step = {2: 3, 6: 4}[colours]
    pixels = [
        row[x : x + 3]
        for row in unfiltered(zlib.decompress(chunks[b"IDAT"]), width * step, step)
        for x in range(0, width * step, step)
    ]
    palette = [colour for colour, _ in Counter(pixels).most_common(256)]
    places = {colour: place for place, colour in enumerate(palette)}
    for colour in set(pixels) - places.keys():
        places[colour] = min(
            range(len(palette)), key=lambda each: sum((a - b) ** 2 for a, b in zip(palette[each], colour, strict=True))
        )
    rows = b"".join(b"\0" + bytes(places[each] for each in pixels[y * width : (y + 1) * width]) for y in range(height))
    parts = [
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
        (b"PLTE", b"".join(palette)),
        (b"IDAT", zlib.compress(rows, 9)),
        (b"IEND", b""),
    ]
    return png[:8] + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in parts
    )


def unfiltered(data: bytes, width: int, step: int) -> list[bytes]:
    """Undo the filters of a PNG's rows (PNG, section 9.2)."""
    rows, above = [], bytes(width)
    for start in range(0, len(data), width + 1):
        kind, row = data[start], bytearray(data[start + 1 : start + 1 + width])
        for x in range(width):
            left, up, corner = (row[x - step], above[x], above[x - step]) if x >= step else (0, above[x], 0)
            nearest = min((left, up, corner), key=lambda each: abs(left + up - corner - each))
            row[x] = (row[x] + (0, left, up, (left + up) // 2, nearest)[kind]) & 255
        above = bytes(row)
        rows.append(above)
    return rows
