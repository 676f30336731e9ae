"""Whether a server can still give what follows a position."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

import pytest

from frazil.clients.postgres.replication import SystemIdentity, TimelineSwitch, parse_history
from frazil.errors import (
    ConfigError,
    PositionLostError,
    SourceReplacedError,
    SourceUnavailableError,
)
from frazil.model.marker import Marker
from frazil.model.postgres.facts import PublicationFacts, SlotFacts, WalStatus
from frazil.model.postgres.lsn import format_lsn
from frazil.sources.postgres.slot.continuity import (
    SlotStep,
    as_observed,
    check_continuity,
    check_publication,
    check_slot,
    check_source,
    check_timeline,
    plan_slot,
    source_identity,
)
from tests.support.postgres.sound import PUBLICATION

if TYPE_CHECKING:
    from frazil.sources.postgres.settings import PostgresSettings

POSITION = 0x200


class _Names:
    slot = "s"
    publication = "p"


# Nothing else of the settings is checked.
SETTINGS = cast("PostgresSettings", _Names)


def server(timeline: int = 1) -> SystemIdentity:
    return SystemIdentity("7301", timeline, 0x1000, "shop")


def slot(**changes: object) -> SlotFacts:
    facts: dict[str, object] = {
        "name": "s",
        "plugin": "pgoutput",
        "database": "shop",
        "is_temporary": False,
        "is_active": False,
        "confirmed_flush": 0x100,
        "restart": 0x80,
        "wal_status": WalStatus.RESERVED,
        "safe_wal_bytes": None,
        "invalidation_reason": None,
        "is_two_phase": False,
        "is_failover": False,
    }
    return SlotFacts(**(facts | changes))  # type: ignore[arg-type]


def watch(found: SlotFacts | None) -> SlotFacts:
    return check_slot(found, name="s", database="shop")


def test_positions_count_in_a_server_a_database_and_a_slot() -> None:
    assert source_identity(server(), "s") == "postgres/7301/shop/s"


@pytest.mark.parametrize(
    "counted_in", ["postgres/7302/shop/s", "postgres/7301/other/s", "postgres/7301/shop/t"]
)
def test_positions_that_were_counted_elsewhere_are_refused(counted_in: str) -> None:
    check_source(server(), "s", "postgres/7301/shop/s")
    with pytest.raises(SourceReplacedError, match=r"right server.*resync --all"):
        check_source(server(), "s", counted_in)


def test_a_publication_that_is_gone_sent_nothing_since() -> None:
    with pytest.raises(PositionLostError, match=r"publication p .*resync"):
        check_publication(None, name="p")


def test_a_slot_that_is_behind_us_or_with_us_is_well() -> None:
    for confirmed in (POSITION - 1, POSITION):
        check_continuity(watch(slot(confirmed_flush=confirmed)), POSITION)


def test_a_slot_ahead_of_us_has_lost_what_lies_between() -> None:
    with pytest.raises(PositionLostError, match=r"0/201.*0/200.*lost.*resync"):
        check_continuity(slot(confirmed_flush=POSITION + 1), POSITION)


@pytest.mark.parametrize(
    "found",
    [
        None,
        slot(wal_status=WalStatus.LOST),
        slot(invalidation_reason="idle_timeout"),
        slot(confirmed_flush=None),
    ],
)
def test_a_slot_that_is_gone_or_invalid_is_lost(found: SlotFacts | None) -> None:
    with pytest.raises(PositionLostError, match="resync"):
        watch(found)


def test_a_lost_slot_is_explained_by_the_server_where_it_can() -> None:
    with pytest.raises(PositionLostError, match="invalidated the slot s: idle_timeout"):
        watch(slot(invalidation_reason="idle_timeout"))
    with pytest.raises(PositionLostError, match="invalidated the slot s: its log was removed"):
        watch(slot(wal_status=WalStatus.LOST))


def test_a_slot_that_confirmed_nothing_is_not_ahead() -> None:
    check_continuity(slot(confirmed_flush=None), 0)


@pytest.mark.parametrize("found", [slot(plugin="wal2json"), slot(database="other")])
def test_a_foreign_slot_is_not_touched(found: SlotFacts) -> None:
    with pytest.raises(ConfigError, match=r"source\.slot"):
        watch(found)


def test_the_same_timeline_queries_nothing() -> None:
    check_timeline(server(), (), generation=1, position=POSITION)


def test_a_fail_over_after_all_we_have_goes_on() -> None:
    switches = (TimelineSwitch(1, POSITION),)
    check_timeline(server(2), switches, generation=1, position=POSITION)


def test_a_fail_over_before_what_we_have_is_another_history() -> None:
    switches = (TimelineSwitch(1, POSITION - 1),)
    with pytest.raises(SourceReplacedError, match=r"0/1FF.*another history"):
        check_timeline(server(2), switches, generation=1, position=POSITION)


def test_switches_before_our_timeline_are_its_own_past() -> None:
    switches = (TimelineSwitch(1, 0x10), TimelineSwitch(2, 0x20))
    check_timeline(server(3), switches, generation=3, position=POSITION)


def test_an_older_timeline_is_a_server_that_was_set_back() -> None:
    with pytest.raises(SourceReplacedError, match="older server"):
        check_timeline(server(1), (), generation=2, position=POSITION)


def test_a_server_that_ends_before_what_we_have_was_set_back() -> None:
    check_timeline(server(), (), generation=1, position=server().log_end)
    with pytest.raises(SourceReplacedError, match=r"ends at 0/1000.*restored"):
        check_timeline(server(), (), generation=1, position=server().log_end + 1)


STANDBY = replace(server(), is_standby=True)


def test_a_standby_that_is_behind_is_waited_for() -> None:
    check_timeline(STANDBY, (), generation=1, position=STANDBY.log_end)
    with pytest.raises(SourceUnavailableError, match=r"replayed up to 0/1000 .*0/1001"):
        check_timeline(STANDBY, (), generation=1, position=STANDBY.log_end + 1)
    # Its primary was promoted, and it has not come to that yet.
    with pytest.raises(SourceUnavailableError, match="timeline 2"):
        check_timeline(STANDBY, (), generation=2, position=POSITION)
    with pytest.raises(SourceUnavailableError):
        continued(found=STANDBY, kept=slot(), reached=STANDBY.log_end + 1)
    # Neither its slot nor its publication can be judged before that.
    with pytest.raises(SourceUnavailableError):
        continued(found=STANDBY, publication=None, reached=STANDBY.log_end + 1)


def test_a_standby_of_another_history_is_refused_however_far_it_is() -> None:
    switches = (TimelineSwitch(1, POSITION - 1),)
    for log_end in (POSITION - 1, POSITION + 1):
        standby = SystemIdentity("7301", 2, log_end, "shop", is_standby=True)
        with pytest.raises(SourceReplacedError, match="another history"):
            check_timeline(standby, switches, generation=1, position=POSITION)


def test_a_standby_is_as_far_as_when_its_tables_were_read() -> None:
    assert as_observed(STANDBY, 0x800).log_end == 0x800
    assert as_observed(STANDBY, 0x1800).log_end == 0x1000
    assert as_observed(STANDBY, None) == STANDBY
    assert as_observed(server(), 0x800) == server()


def test_a_switch_away_from_the_very_timeline_we_are_on_is_checked() -> None:
    switches = (TimelineSwitch(1, 0x10), TimelineSwitch(2, POSITION - 1))
    with pytest.raises(SourceReplacedError, match="left timeline 2"):
        check_timeline(server(3), switches, generation=2, position=POSITION)
    check_timeline(server(3), switches, generation=2, position=POSITION - 1)


def test_a_slot_that_is_valid_is_given_back() -> None:
    assert watch(slot()) == slot()
    check_publication(PUBLICATION, name="p")


SINCE = Marker(
    pipeline="p", source="postgres/7301/shop/s", position=format_lsn(POSITION), batch="b", epoch=1
)


def continued(
    since: Marker | None = SINCE,
    *,
    reached: int = 0,
    found: SystemIdentity | None = None,
    switches: tuple[TimelineSwitch, ...] = (),
    publication: PublicationFacts | None = PUBLICATION,
    kept: SlotFacts | None = None,
) -> SlotStep:
    return plan_slot(
        SETTINGS,
        since,
        reached=reached,
        server=found or server(),
        switches=switches,
        publication=publication,
        slot=kept,
    )


def test_all_of_it_is_checked_before_anything_is_read() -> None:
    assert continued(kept=slot(confirmed_flush=POSITION)) is SlotStep.KEEP
    with pytest.raises(SourceReplacedError):
        continued(replace(SINCE, source="postgres/7301/shop/other"), kept=slot())
    with pytest.raises(SourceReplacedError):
        continued(replace(SINCE, epoch=2), kept=slot())
    with pytest.raises(PositionLostError, match="publication"):
        continued(publication=None, kept=slot())
    with pytest.raises(PositionLostError, match="does not exist"):
        continued(kept=None)
    with pytest.raises(PositionLostError, match="lost"):
        continued(kept=slot(confirmed_flush=POSITION + 1))


def test_without_a_marker_a_slot_that_keeps_nothing_of_use_is_replaced() -> None:
    assert continued(None) is SlotStep.CREATE
    assert continued(None, kept=slot()) is SlotStep.KEEP
    assert continued(None, kept=slot(wal_status=WalStatus.LOST)) is SlotStep.REPLACE
    assert continued(None, kept=slot(), publication=None) is SlotStep.REPLACE
    with pytest.raises(ConfigError):
        continued(None, kept=slot(plugin="wal2json"))


@pytest.mark.fault("N33")
def test_a_fail_over_before_what_any_table_has_is_another_history() -> None:
    """The ledger waits for a paused table; another one is ahead of it."""
    switches = (TimelineSwitch(1, POSITION + 8),)
    continued(found=server(2), switches=switches, kept=slot(), reached=POSITION + 8)
    with pytest.raises(SourceReplacedError, match="another history"):
        continued(found=server(2), switches=switches, kept=slot(), reached=POSITION + 9)
    with pytest.raises(SourceReplacedError, match="restored"):
        continued(kept=slot(), reached=server().log_end + 1)
    # The ledger counts as well, where no table is ahead of it.
    with pytest.raises(SourceReplacedError, match="another history"):
        continued(found=server(2), switches=(TimelineSwitch(1, POSITION - 1),), kept=slot())
    # The slot may be as far as the ledger, never as far as a table.
    with pytest.raises(PositionLostError):
        continued(kept=slot(confirmed_flush=POSITION + 1), reached=POSITION + 1)


def test_a_history_file_is_read_with_its_remarks() -> None:
    content = b"1\t0/3000060\tno recovery target specified\n\n2\t1/A0\tbefore 2026-01-01\n"
    assert parse_history(content) == (TimelineSwitch(1, 0x3000060), TimelineSwitch(2, 0x1000000A0))
