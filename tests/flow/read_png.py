"""Decodes an RGB PNG file of 8 bits without any library: width, height, pixels."""
import struct
import zlib


def png(path):
    data, at, packed = open(path, "rb").read(), 8, b""
    while at < len(data):
        length, name = struct.unpack(">I4s", data[at:at + 8])
        body = data[at + 8:at + 8 + length]
        if name == b"IHDR":
            width, height, depth, colour = struct.unpack(">IIBB", body[:10])
            assert (depth, colour) == (8, 2)
        packed += body if name == b"IDAT" else b""
        at += length + 12
    raw, n, lines, before = zlib.decompress(packed), width * 3, [], bytes(width * 3)
    for y in range(height):
        kind, line = raw[y * (n + 1)], bytearray(raw[y * (n + 1) + 1:(y + 1) * (n + 1)])
        for i in range(n):
            a, b = (line[i - 3] if i > 2 else 0), before[i]
            c = before[i - 3] if i > 2 else 0
            nearest = min((abs(b - c), 0, a), (abs(a - c), 1, b), (abs(a + b - 2 * c), 2, c))[2]
            line[i] = line[i] + (0, a, b, (a + b) // 2, nearest)[kind] & 255
        before = bytes(line)
        lines.append(before)
    return width, height, b"".join(lines)
