"""Writer of tiny GGUF files: a model of one layer that always says the same, with any chat template."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HEAD = 32
_UINT32, _FLOAT32, _STRING, _ARRAY, _INT32 = 4, 6, 8, 9, 5
_NORMAL, _CONTROL = 1, 3
_ALIGNMENT = 32


def write_gguf(path: Path, template: str, says: str = "Hello.", *, context: int = 4096, name: str = "tiny") -> Path:
    """Write a model of the architecture `llama`; its tokens are the bytes, `says` and the end of an answer.

    After each token it says `says`, and then it ends: the embedding of a token is a unit vector, attention and
    feed-forward layer are zero, and the output layer maps each unit vector to the token that follows.

    Args:
        template: its chat template, in Jinja.
    """
    letters = _byte_characters()
    said = "".join(letters[byte] for byte in says.encode())
    tokens = [*letters, "ab", "<|begin|>", said, "<|end|>"]
    kinds = [_NORMAL] * 257 + [_CONTROL, _NORMAL, _CONTROL]
    width = -(-len(tokens) // HEAD) * HEAD
    last = len(tokens) - 1
    metadata: list[tuple[str, int, Any]] = [
        ("general.architecture", _STRING, "llama"),
        ("general.name", _STRING, name),
        ("llama.context_length", _UINT32, context),
        ("llama.embedding_length", _UINT32, width),
        ("llama.block_count", _UINT32, 1),
        ("llama.feed_forward_length", _UINT32, HEAD),
        ("llama.attention.head_count", _UINT32, width // HEAD),
        ("llama.attention.head_count_kv", _UINT32, width // HEAD),
        ("llama.attention.layer_norm_rms_epsilon", _FLOAT32, 1e-5),
        ("llama.rope.dimension_count", _UINT32, HEAD),
        ("tokenizer.ggml.model", _STRING, "gpt2"),
        ("tokenizer.ggml.pre", _STRING, "default"),
        ("tokenizer.ggml.tokens", _ARRAY, (_STRING, tokens)),
        ("tokenizer.ggml.token_type", _ARRAY, (_INT32, kinds)),
        ("tokenizer.ggml.merges", _ARRAY, (_STRING, ["a b"])),
        ("tokenizer.ggml.bos_token_id", _UINT32, 257),
        ("tokenizer.ggml.eos_token_id", _UINT32, last),
        ("tokenizer.chat_template", _STRING, template),
    ]
    rows = len(tokens)
    ones = struct.pack(f"<{width}f", *[1.0] * width)
    tensors = [
        ("token_embd.weight", (width, rows), _matrix(width, [(row, row) for row in range(rows)])),
        ("output_norm.weight", (width,), ones),
        ("output.weight", (width, rows), _matrix(width, _followers(rows))),
        ("blk.0.attn_norm.weight", (width,), ones),
        *(
            (f"blk.0.attn_{part}.weight", (width, width), bytes(4 * width * width))
            for part in ("q", "k", "v", "output")
        ),
        ("blk.0.ffn_norm.weight", (width,), ones),
        ("blk.0.ffn_gate.weight", (width, HEAD), bytes(4 * width * HEAD)),
        ("blk.0.ffn_up.weight", (width, HEAD), bytes(4 * width * HEAD)),
        ("blk.0.ffn_down.weight", (HEAD, width), bytes(4 * width * HEAD)),
    ]
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    head += b"".join(_text(key) + struct.pack("<I", kind) + _encode(kind, value) for key, kind, value in metadata)
    data = b""
    for tensor, shape, values in tensors:
        head += _text(tensor) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, len(data))
        data += values + bytes(-len(values) % _ALIGNMENT)
    path.write_bytes(head + bytes(-len(head) % _ALIGNMENT) + data)
    return path


def _followers(rows: int) -> list[tuple[int, int]]:
    """Return (row, column) of the output layer: the last token follows the one before it, that one follows all."""
    end, said = rows - 1, rows - 2
    return [(end, said), *((said, column) for column in range(rows) if column != said)]


def _matrix(width: int, ones: Sequence[tuple[int, int]]) -> bytes:
    """Return a matrix with ones at these rows and columns, the rest zero; its last row is the highest of `ones`."""
    values = bytearray(4 * width * (max(row for row, _ in ones) + 1))
    for row, column in ones:
        struct.pack_into("<f", values, 4 * (row * width + column), 1.0)
    return bytes(values)


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _encode(kind: int, value: Any) -> bytes:
    if kind == _STRING:
        return _text(value)
    if kind == _ARRAY:
        of, items = value
        return struct.pack("<IQ", of, len(items)) + b"".join(_encode(of, item) for item in items)
    return struct.pack({_UINT32: "<I", _INT32: "<i", _FLOAT32: "<f"}[kind], value)


def _byte_characters() -> list[str]:
    """Return the character with which a byte-level vocabulary writes each byte."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    moved = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(moved)) for byte in range(256)]
