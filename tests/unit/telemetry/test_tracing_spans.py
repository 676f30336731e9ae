from __future__ import annotations

import io
import json
import sys
from typing import TYPE_CHECKING

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from frazil.errors import RuntimeMissingError
from frazil.model.policy import LogFormat
from frazil.telemetry.logs import LogSettings, configure_logs, get_logger
from frazil.telemetry.redaction import Redactor
from frazil.telemetry.tracing import NoTracing, SpanName, Tracing, start_tracing
from tests.unit.telemetry.canaries import CANARY, CANARY_PART, every_error
from tests.unit.telemetry.http_sink import Sink, listening_sink

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opentelemetry.proto.trace.v1.trace_pb2 import Span


@pytest.fixture
def sink(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sink]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", f"k8s.pod.name=a-{CANARY_PART}")
    with listening_sink() as opened:
        yield opened


def start(sink: Sink) -> Tracing:
    return start_tracing(
        f"http://{sink.host}",
        pipeline="shop",
        release="1.2.3",
        redactor=Redactor([CANARY, CANARY_PART]),
    )


def requests(sink: Sink) -> list[ExportTraceServiceRequest]:
    return [ExportTraceServiceRequest.FromString(body) for body in sink.bodies]


def spans(sink: Sink) -> dict[str, Span]:
    return {
        span.name: span
        for request in requests(sink)
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    }


def test_spans_nest_and_carry_our_attributes(sink: Sink) -> None:
    tracing = start(sink)
    with (
        tracing.span(SpanName.BATCH, batch=7, role="merge"),
        tracing.span(SpanName.COMMIT, table="public.orders", rows=3),
    ):
        pass
    tracing.close()
    assert set(sink.paths) == {"/v1/traces"}
    batch, commit = spans(sink)["frazil.batch"], spans(sink)["frazil.commit"]
    assert commit.parent_span_id == batch.span_id
    assert {item.key: item.value.string_value for item in commit.attributes}[
        "frazil.table"
    ] == "public.orders"
    resource = requests(sink)[0].resource_spans[0].resource
    described = {item.key: item.value.string_value for item in resource.attributes}
    assert described["service.name"] == "frazil"
    assert described["service.version"] == "1.2.3"
    assert described["frazil.pipeline"] == "shop"
    assert described["k8s.pod.name"] == "a-***"


def test_what_has_ended_is_recorded_as_a_part_of_its_block(sink: Sink) -> None:
    tracing = start(sink)
    with tracing.span(SpanName.BATCH, role="merge"):
        tracing.record(SpanName.COMMIT, 1.5, table=CANARY, rows=3)
    tracing.close()
    batch, commit = spans(sink)["frazil.batch"], spans(sink)["frazil.commit"]
    assert commit.parent_span_id == batch.span_id
    assert commit.end_time_unix_nano - commit.start_time_unix_nano == 1_500_000_000
    assert CANARY_PART.encode() not in b"".join(sink.bodies)


@pytest.mark.fault("G11")
def test_a_planted_secret_leaves_in_no_span(sink: Sink) -> None:
    tracing = start(sink)
    for error in every_error():
        with (
            pytest.raises(type(error)),
            tracing.span(SpanName.BATCH, table=CANARY, position=f"password={CANARY}"),
        ):
            raise error
    tracing.close()
    everything = b"\n".join(sink.bodies)
    assert CANARY_PART.encode() not in everything
    assert b"***" in everything
    (event,) = spans(sink)["frazil.batch"].events
    recorded = {item.key: item.value.string_value for item in event.attributes}
    assert recorded["exception.type"] == "Py4JJavaError"
    assert spans(sink)["frazil.batch"].status.code == 2


def test_logs_within_a_span_carry_its_ids(sink: Sink) -> None:
    stream = io.StringIO()
    undo = configure_logs(LogSettings(format=LogFormat.JSON), Redactor(), stream)
    tracing = start(sink)
    with tracing.span(SpanName.BATCH):
        get_logger("frazil").info("inside")
    get_logger("frazil").info("outside")
    tracing.close()
    undo()
    inside, outside = (json.loads(line) for line in stream.getvalue().splitlines())
    assert bytes.fromhex(inside["trace_id"]) == spans(sink)["frazil.batch"].trace_id
    assert bytes.fromhex(inside["span_id"]) == spans(sink)["frazil.batch"].span_id
    assert "trace_id" not in outside


def test_an_unknown_attribute_is_a_mistake_of_ours(sink: Sink) -> None:
    tracing = start(sink)
    for each in (tracing, NoTracing()):
        with pytest.raises(ValueError, match="tabel"), each.span(SpanName.BATCH, tabel="x"):
            pass
    tracing.close()


def test_without_an_address_nothing_is_traced() -> None:
    tracing = start_tracing(None, pipeline="shop", release="1", redactor=Redactor())
    with tracing.span(SpanName.BATCH, batch=1):
        pass
    tracing.close()
    assert isinstance(tracing, NoTracing)


def test_an_address_without_the_package_names_the_command_to_type(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(RuntimeMissingError, match=r"pip install 'frazil\[otel\]'"):
        start_tracing("http://127.0.0.1:1", pipeline="shop", release="1", redactor=Redactor())
