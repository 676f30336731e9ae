"""Keys whose hashes are pinned in ``tests/golden/key-hashes.json``, as Python values."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal as Number
from pathlib import Path
from typing import TYPE_CHECKING

from frazil.model.schema.types import Decimal, Fixed, Primitive, parse_scalar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from frazil.model.schema.types import Scalar

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "key-hashes.json"

READERS: Mapping[Primitive, Callable[[str], object]] = {
    Primitive.INT: int,
    Primitive.LONG: int,
    Primitive.FLOAT: float,
    Primitive.DOUBLE: float,
    Primitive.DATE: date.fromisoformat,
    Primitive.TIMESTAMP: datetime.fromisoformat,
    Primitive.TIMESTAMPTZ: datetime.fromisoformat,
    Primitive.BOOLEAN: {"true": True, "false": False}.__getitem__,
    Primitive.STRING: str,
    Primitive.UUID: uuid.UUID,
    Primitive.BINARY: bytes.fromhex,
}


@dataclass(frozen=True)
class GoldenKey:
    """One key and its hash; ``encoded`` is what SHA-256 was taken of, where it was."""

    types: tuple[Scalar, ...]
    values: tuple[object, ...]
    hi: int
    lo: int
    encoded: bytes | None
    texts: tuple[str, ...]

    def __str__(self) -> str:
        return ", ".join(
            f"{type_} {text!r}" for type_, text in zip(self.types, self.texts, strict=True)
        )


def read_value(text: str, type_: Scalar) -> object:
    match type_:
        case Decimal():
            return Number(text)
        case Fixed():
            return bytes.fromhex(text)
        case _:
            return READERS[type_](text)


def golden_keys() -> list[GoldenKey]:
    found = []
    for each in json.loads(GOLDEN.read_text(encoding="utf-8"))["keys"]:
        types = tuple(parse_scalar(name) for name in each["types"])
        texts = tuple(each["values"])
        values = tuple(read_value(*pair) for pair in zip(texts, types, strict=True))
        encoded = each.get("encoded")
        found.append(
            GoldenKey(
                types,
                values,
                int(each["hi"], 16),
                int(each["lo"], 16),
                None if encoded is None else bytes.fromhex(encoded),
                texts,
            )
        )
    return found
