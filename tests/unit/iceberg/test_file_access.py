"""Vended credentials: whose they are, and when they are asked for again."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from frazil.clients.iceberg.table import (
    RENEWED_AFTER_SECONDS,
    Renewal,
    StorageCredential,
    access_to,
)
from frazil.hooks import ManualClock

pytestmark = pytest.mark.fault("C6")

START = datetime(2026, 1, 1, tzinfo=UTC)
FOLDER = "s3://lake/shop/users"


def test_the_credential_with_the_longest_prefix_wins_over_the_properties() -> None:
    credentials = [
        StorageCredential("s3", {"s3.session-token": "any"}),
        StorageCredential(FOLDER, {"s3.session-token": "ours"}),
        StorageCredential("s3://lake/shop", {"s3.session-token": "schema"}),
        StorageCredential("s3://lake/shop/users/data/of/others", {"s3.session-token": "others"}),
    ]
    properties = {"s3.session-token": "old", "s3.endpoint": "http://here"}

    found = access_to(FOLDER, properties, credentials)

    assert found == {"s3.session-token": "ours", "s3.endpoint": "http://here"}
    assert access_to("gs://lake", properties, credentials) == properties
    assert "ours" not in repr(credentials)


@pytest.mark.parametrize(
    ("access", "seconds"),
    [
        ({"s3.session-token": "t"}, RENEWED_AFTER_SECONDS),
        ({"gcs.oauth2.token": "t"}, RENEWED_AFTER_SECONDS),
        ({"adls.sas-token.shop.dfs.core.windows.net": "t"}, RENEWED_AFTER_SECONDS),
        ({"s3.session-token": "t", "s3.session-token-expires-at-ms": 3_600}, RENEWED_AFTER_SECONDS),
        ({"s3.session-token": "t", "s3.session-token-expires-at-ms": 100}, 50.0),
        ({"gcs.oauth2.token": "t", "gcs.oauth2.token-expires-at": 100}, 50.0),
        ({"adls.sas-token.a": "t", "adls.sas-token-expires-at-ms.a": 100}, 50.0),
        ({"s3.session-token": "t", "s3.session-token-expires-at-ms": -5}, 0.0),
    ],
)
def test_credentials_are_renewed_at_half_their_time_at_the_latest(
    access: dict[str, str | int], seconds: float
) -> None:
    clock = ManualClock(START)
    properties = {
        name: value if isinstance(value, str) else str(int((START.timestamp() + value) * 1000))
        for name, value in access.items()
    }
    renewal = Renewal(properties, clock)
    if seconds:
        clock.sleep(seconds - 0.5)
        assert not renewal.is_due()
        clock.sleep(0.5)
    assert renewal.is_due()


def test_keys_that_do_not_end_are_never_renewed() -> None:
    clock = ManualClock(START)
    renewal = Renewal({"s3.access-key-id": "a", "s3.secret-access-key": "b"}, clock)
    clock.sleep(1e9)
    assert not renewal.is_due()
