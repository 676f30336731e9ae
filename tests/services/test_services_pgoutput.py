"""The messages of a running server, decoded both ways, give the history that happened."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from frazil.codec.pgoutput.bulk_decoder import decode_frames
from frazil.codec.pgoutput.frames import Frames
from tests.support.pgoutput.capture import capture
from tests.support.pgoutput.frames import encode_message
from tests.support.pgoutput.golden import (
    decode_all,
    golden,
    without_chance,
    without_empty_parts,
    without_repetitions,
)
from tests.support.pgoutput.histories import SlowReplay, decoded_history

if TYPE_CHECKING:
    from collections.abc import Sequence

    from frazil.codec.pgoutput.messages import Message
    from frazil.demo.services import Postgres

pytestmark = pytest.mark.services


def essence(messages: Sequence[Message]) -> list[Message]:
    """What every server says of the same history, whatever else happens to it."""
    return without_chance(without_repetitions(without_empty_parts(messages)))


@pytest.mark.parametrize("version", ["postgres", "postgres_16"])
def test_a_server_says_what_the_golden_messages_say(
    version: str, request: pytest.FixtureRequest
) -> None:
    server: Postgres = request.getfixturevalue(version)
    captured, expected = capture(server), golden()
    for messages, recorded in (
        (captured.complete, expected.complete),
        (captured.in_parts, expected.in_parts),
    ):
        decoded = decode_all(messages)
        assert [encode_message(each) for each in decoded] == list(messages)
        assert decoded_history(decode_frames(Frames.of(messages))) == SlowReplay().replay(messages)
        assert essence(decoded) == essence(decode_all(recorded))
