"""Vended credentials: whose they are, and when they are asked for again."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from frazil.clients.iceberg.file_access import (
    RENEWED_AFTER_SECONDS,
    Renewal,
    access_to,
    with_credentials,
)
from frazil.clients.iceberg.file_system import plan_store
from frazil.hooks import ManualClock

pytestmark = pytest.mark.fault("C6")

START = datetime(2026, 1, 1, tzinfo=UTC)
FOLDER = "s3://lake/shop/users"


def test_the_credential_with_the_longest_prefix_wins_over_the_properties() -> None:
    credentials = {
        "s3": {"s3.session-token": "any"},
        FOLDER: {"s3.session-token": "ours"},
        "s3://lake/shop": {"s3.session-token": "schema"},
        f"{FOLDER}/data": {"s3.session-token": "data", "s3.endpoint": "http://there"},
        "s3://fast": {"s3.session-token": "fast"},
    }
    properties = {"s3.session-token": "old", "s3.endpoint": "http://here"}
    access = with_credentials(properties, credentials.items())

    for location, token in (
        (FOLDER, "ours"),
        (f"{FOLDER}/metadata/v1.puffin", "ours"),
        ("s3://lake/other", "any"),
        # Where write.data.path leads, and write.metadata.path may.
        ("s3://fast/ab12/shop/users/x.parquet", "fast"),
    ):
        found = access_to(location, access)
        assert found == {"s3.session-token": token, "s3.endpoint": "http://here"}
    assert access_to(f"{FOLDER}/data/x.parquet", access) == credentials[f"{FOLDER}/data"]
    assert access_to("gs://lake", access) == properties


def test_each_file_of_a_table_is_opened_with_the_credential_for_its_place() -> None:
    own = {"s3.access-key-id": "a", "s3.secret-access-key": "b", "s3.endpoint": "http://here"}
    vended = {f"{FOLDER}/data": own | {"s3.endpoint": "http://there"}}
    access = with_credentials(own, vended.items())
    for folder, endpoint in (("data", "http://there"), ("metadata", "http://here")):
        arguments = dict(plan_store(f"{FOLDER}/{folder}/file", access).arguments)
        assert arguments["endpoint_override"] == endpoint


def test_what_is_vended_for_one_place_alone_is_renewed_too() -> None:
    ends = str(int((START.timestamp() + 100) * 1000))
    of_data = {"s3.session-token": "t", "s3.session-token-expires-at-ms": ends}
    clock = ManualClock(START)
    renewal = Renewal(with_credentials({}, {f"{FOLDER}/data": of_data}.items()), clock)
    assert not renewal.is_due()
    clock.sleep(50)
    assert renewal.is_due()


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
