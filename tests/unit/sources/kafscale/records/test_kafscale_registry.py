"""Schemas of topics: what they refuse, the columns they declare, and how they are fetched."""

from __future__ import annotations

import json
import pickle
import threading
from collections import Counter
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from frazil.config.models.kafscale_source import Registry
from frazil.errors import ConfigError, SourceUnavailableError
from frazil.hooks import ManualClock
from frazil.sources.kafscale.records.record_schema import RecordSchema
from frazil.sources.kafscale.records.schema_registry import SchemaRegistry

if TYPE_CHECKING:
    from collections.abc import Iterator

ORDER = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "at": {"type": "string", "format": "date-time"},
        "total": {"type": ["null", "number"]},
        "paid": {"type": "boolean"},
        "lines": {"type": "array"},
        "any": {},
    },
    "required": ["id"],
}


def schema(document: object = ORDER) -> RecordSchema:
    return RecordSchema("orders", json.dumps(document).encode())


def test_a_record_is_valid_or_the_broken_rule_is_named_without_its_value() -> None:
    orders = schema()
    assert orders.problem(b'{"id": 1}') is None
    assert orders.problem(b'{"id": "secret"}') == "properties/id/type"
    assert orders.problem(b"{}") == "required"
    assert orders.problem(b"no json") == "json"
    # A tombstone has nothing to validate.
    assert orders.problem(None) is orders.problem(b"") is None
    again: RecordSchema = pickle.loads(pickle.dumps(orders))
    assert again.problem(b"{}") == "required"


def test_formats_are_rules_in_the_older_drafts_only() -> None:
    value = b'{"id": 1, "at": "no date"}'
    assert schema().problem(value) is None
    older = {**ORDER, "$schema": "http://json-schema.org/draft-07/schema#"}
    assert schema(older).problem(value) == "properties/at/format"


@pytest.mark.parametrize(
    "document",
    [
        {"$ref": "http://127.0.0.1:9/x.json"},
        {"$ref": "file:///etc/hostname"},
        {"type": 3},
        {"$schema": "urn:unknown"},
        [],
    ],
)
def test_a_schema_that_cannot_be_used_or_points_elsewhere_is_refused(document: Any) -> None:
    with pytest.raises(ConfigError, match="topic orders cannot be used"):
        schema(document)


def test_simple_properties_become_columns_in_the_order_of_their_names() -> None:
    found = [(each.name, each.type.value, each.required) for each in schema().columns()]
    assert found == [
        ("at", "string", False),
        ("id", "long", True),
        ("paid", "boolean", False),
        ("total", "double", False),
    ]
    with pytest.raises(ConfigError, match="declares no simple property"):
        schema({"properties": {"a": {"type": "object"}}}).columns()


class Answers:
    """What the registry answers by path, and what it was asked for."""

    def __init__(self) -> None:
        self.status, self.body = 200, json.dumps(ORDER).encode()
        self.headers: dict[str, str] = {}
        self.asked: Counter[str] = Counter()
        self.accounts: list[str | None] = []
        self.address = ""

    def registry(
        self, *, account: str = "", cache: float = 60.0
    ) -> tuple[SchemaRegistry, ManualClock]:
        clock = ManualClock(datetime(2026, 3, 1, tzinfo=UTC))
        section = Registry(
            base_url=f"http://{account}{self.address}/schemas/",
            timeout=timedelta(seconds=5),
            cache=timedelta(seconds=cache),
        )
        return SchemaRegistry(section, clock), clock


@contextmanager
def serving() -> Iterator[Answers]:
    answers = Answers()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answers.asked[self.path] += 1
            answers.accounts.append(self.headers["Authorization"])
            self.send_response(answers.status)
            for name, value in answers.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(answers.body)))
            self.end_headers()
            self.wfile.write(answers.body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    answers.address = f"127.0.0.1:{server.server_port}"
    try:
        yield answers
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.fault("U18")
def test_a_schema_is_fetched_once_in_a_while() -> None:
    with serving() as answers:
        registry, clock = answers.registry()
        assert registry.load("a.b-c_d") is registry.load("a.b-c_d")
        assert answers.asked == {"/schemas/a.b-c_d.json": 1}
        clock.advance(61)
        registry.load("a.b-c_d")
        assert answers.asked == {"/schemas/a.b-c_d.json": 2}


def test_a_name_cannot_lead_to_another_path() -> None:
    with serving() as answers:
        answers.registry()[0].load("../x?y")
        assert list(answers.asked) == ["/schemas/..%2Fx%3Fy.json"]


def test_an_account_is_sent_and_never_shown() -> None:
    with serving() as answers:
        registry, _ = answers.registry(account="me:se%3Acret@")
        registry.load("orders")
        assert answers.accounts == ["Basic bWU6c2U6Y3JldA=="]
        answers.status = 503
        with pytest.raises(SourceUnavailableError) as failed:
            registry.load("others")
        assert "cret" not in str(failed.value)


@pytest.mark.fault("U18")
def test_an_outage_says_nothing_about_records() -> None:
    with serving() as answers:
        registry, _ = answers.registry()
        for status in (500, 503, 403):
            answers.status = status
            with pytest.raises(SourceUnavailableError, match=f"answered {status}"):
                registry.load("orders")
        answers.status = 404
        with pytest.raises(ConfigError, match="no schema of topic orders"):
            registry.load("orders")
    with pytest.raises(SourceUnavailableError):
        registry.load("orders")


def test_a_registry_that_sends_too_much_or_points_elsewhere_is_not_followed() -> None:
    with serving() as answers:
        registry, _ = answers.registry()
        answers.body = b" " * (4 << 20) + b"{}"
        with pytest.raises(ConfigError, match="larger than"):
            registry.load("orders")
        answers.status, answers.body = 302, b""
        answers.headers = {"Location": "file:///etc/hostname"}
        with pytest.raises(SourceUnavailableError, match="answered 302"):
            registry.load("orders")
