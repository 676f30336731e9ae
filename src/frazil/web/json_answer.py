"""JSON responses without control characters."""

from __future__ import annotations

import json

from starlette.responses import JSONResponse

from frazil.model.printable import printable_json


class JsonAnswer(JSONResponse):
    """JSON that is safe to print on a terminal: names of tables are in it."""

    def render(self, content: object) -> bytes:
        """The document as bytes."""
        document = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return printable_json(document).encode()
