"""Copies of the source table, and rebuilds: both ignore everything before."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from frazil import errors
from frazil.changelog.layout import changelog_schema
from frazil.merge import merger
from frazil.merge.folding.fold import clashing_changes
from frazil.merge.library import library_step
from frazil.merge.merger import Merger
from frazil.merge.planning.changes import null_keys, partial_rows
from frazil.merge.planning.column_mapping import decode_columns
from frazil.merge.planning.plan import OTHER_MIRROR_STEP, needs_rebuild, plan_merge
from frazil.model.marker import SeenMarker
from frazil.model.policy import Deletes, OnDrop, Order
from frazil.model.recorded_version import NEWER_STEP
from frazil.model.schema.types import Field, Primitive
from tests.unit.merge.planning.plan_facts import (
    DELETE,
    OVERWRITE,
    SETTINGS,
    appends,
    changelog,
    merged_through,
    mirror,
    snapshot,
)

if TYPE_CHECKING:
    from frazil.merge.planning.plan import MergePlan
    from frazil.merge.report import MergeCommit
    from frazil.model.marker import Marker
    from frazil.model.table_facts import (
        ChangelogFacts,
        MirrorFacts,
        SnapshotLine,
        SnapshotOperation,
    )


def copied(number: int, epoch: int) -> SnapshotLine:
    return replace(snapshot(number), restart=f"{epoch:04x}")


def at_epoch(position: str, epoch: int, source: str = "changelog-1") -> Marker:
    return replace(merged_through(position, source), sequence=f"{epoch:04x}/{0:016x}/{9:016x}")


def restarted(
    facts: ChangelogFacts, there: MirrorFacts, deletes: Deletes = Deletes.APPLY
) -> MergePlan | None:
    return plan_merge(facts, there, replace(SETTINGS, deletes=deletes))


@pytest.mark.fault("N57")
def test_a_range_begins_with_the_newest_copy_that_was_not_merged() -> None:
    facts = changelog(*appends(1, 2), copied(3, 1), snapshot(4), copied(5, 2), snapshot(6))
    plan = restarted(facts, mirror(at_epoch("2", 0)))
    assert plan is not None
    assert (plan.after, plan.through, plan.start) == (4, 6, "2")
    assert plan.replaces == SeenMarker(None)
    # What was merged already does not restart anything.
    plan = restarted(facts, mirror(at_epoch("5", 2)))
    assert plan is not None
    assert (plan.after, plan.replaces) == (5, None)


@pytest.mark.fault("N57")
@pytest.mark.parametrize("operation", [OVERWRITE, DELETE])
def test_damage_of_a_changelog_before_a_copy_is_ignored(
    operation: SnapshotOperation,
) -> None:
    removal = snapshot(2, operation=operation, removes=True)
    facts = changelog(snapshot(1), removal, copied(3, 1), snapshot(4))
    plan = restarted(facts, mirror(at_epoch("1", 0)))
    assert plan is not None
    assert (plan.after, plan.through) == (2, 4)
    late = changelog(snapshot(1), copied(2, 1), replace(removal, id=3, parent=2))
    with pytest.raises(errors.ForeignChangeError):
        restarted(late, mirror(at_epoch("1", 0)))


@pytest.mark.fault("N57")
def test_a_copy_counts_for_a_mirror_without_a_position_only_if_it_is_later() -> None:
    facts = changelog(copied(3, 1), snapshot(4))
    # Position 9 is gone from the history: expired, or rolled back behind.
    plan = restarted(facts, mirror(at_epoch("9", 0)))
    assert plan is not None
    assert plan.replaces is not None
    with pytest.raises(errors.FrazilError):
        restarted(facts, mirror(at_epoch("9", 1)))
    with pytest.raises(errors.FrazilError):
        restarted(facts, mirror(replace(merged_through("9"), sequence="of others")))
    # No change was merged, as after a copy of an empty table: every copy came later.
    plan = restarted(facts, mirror(merged_through("9")))
    assert plan is not None
    assert plan.replaces is not None
    # Of another table nothing was merged, whatever its epochs were.
    plan = restarted(facts, mirror(at_epoch("9", 7, source="changelog-0")))
    assert plan is not None
    assert plan.replaces is not None


@pytest.mark.fault("N57")
def test_a_marker_that_is_not_valid_is_replaced_by_a_copy_and_by_nothing_else() -> None:
    problem = errors.RolledBackError("was set back.")
    there = replace(mirror(at_epoch("1", 0)), problem=problem, marker_text="as it was")
    plan = restarted(changelog(snapshot(1), copied(2, 1)), there)
    assert plan is not None
    assert plan.replaces == SeenMarker("as it was")
    with pytest.raises(errors.RolledBackError, match="was set back"):
        restarted(changelog(*appends(1, 1)), there)


@pytest.mark.fault("N57")
@pytest.mark.parametrize("deletes", [Deletes.SOFT, Deletes.IGNORE])
def test_where_rows_outlive_a_copy_only_a_mirror_that_is_not_in_order_is_made_again(
    deletes: Deletes,
) -> None:
    kept = replace(SETTINGS, deletes=deletes)
    there, facts = mirror(at_epoch("1", 0)), changelog(snapshot(1), copied(2, 1))
    plan = plan_merge(facts, there, kept)
    assert plan is not None
    assert (plan.after, plan.replaces) == (1, None)
    back = errors.RolledBackError("was set back.")
    with pytest.raises(errors.RolledBackError, match="was set back"):
        plan_merge(facts, replace(there, problem=back), kept)
    assert needs_rebuild(facts, there, kept, back)
    # Nobody asked for it; it is merged already; it is still being copied; or rows do not outlive.
    under_way = changelog(snapshot(1), replace(copied(2, 1), incomplete=True))
    assert not needs_rebuild(changelog(*appends(1, 2)), there, kept, back)
    assert not needs_rebuild(facts, mirror(at_epoch("2", 1)), kept, back)
    assert not needs_rebuild(under_way, there, kept, back)
    assert not needs_rebuild(facts, there, SETTINGS, back)


@pytest.mark.fault("N57")
def test_a_copy_heals_no_store_that_is_away_and_no_catalog() -> None:
    kept = replace(SETTINGS, deletes=Deletes.SOFT)
    there, facts = mirror(at_epoch("1", 0)), changelog(snapshot(1), copied(2, 1))
    away, gone = errors.StorageError("away"), errors.StorageError("gone")
    gone.is_gone = True
    assert needs_rebuild(facts, there, kept, gone)
    for error in (away, errors.CatalogError("away"), errors.FencedError("other")):
        assert not needs_rebuild(facts, there, kept, error)


@pytest.mark.fault("N57")
@pytest.mark.parametrize("in_changes", [clashing_changes(1), null_keys(1)])
def test_a_copy_heals_no_changes(in_changes: errors.FrazilError) -> None:
    """A mirror made again would be made from them, too: at the cost of all it holds, each time."""
    kept = replace(SETTINGS, deletes=Deletes.SOFT)
    there, facts = mirror(at_epoch("1", 0)), changelog(snapshot(1), copied(2, 1))
    in_mirror = type(in_changes)("2 rows of the mirror")
    assert needs_rebuild(facts, there, kept, in_mirror)
    assert not needs_rebuild(facts, there, kept, in_changes)


def merger_of(monkeypatch: pytest.MonkeyPatch, facts: ChangelogFacts) -> tuple[Merger, list[bool]]:
    """A merger that finds these facts, and whose commits fail; what was planned: a rebuild or not.

    Its mirror has rows of another engine, and its first changes.
    """
    none: Any = None
    there = mirror(at_epoch("1", 0))
    planned: list[bool] = []

    def load_plan(*, rebuild: bool) -> MergePlan | None:
        planned.append(rebuild)
        return plan_merge(facts, there, kept, rebuild=rebuild)

    kept = replace(SETTINGS, deletes=Deletes.SOFT)
    monkeypatch.setattr(merger, "pinned_session", lambda session: session)
    monkeypatch.setattr(merger, "load_mirror_facts", lambda _: there)
    monkeypatch.setattr(merger, "load_changelog_facts", lambda _, after: facts)  # noqa: ARG005
    made = Merger(none, none, kept)
    made._open = lambda name: name  # type: ignore[method-assign,assignment,return-value]
    made._load_plan = load_plan  # type: ignore[method-assign]
    return made, planned


@pytest.mark.fault("N57")
def test_a_mirror_is_not_made_again_for_the_cause_for_which_that_was_in_vain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, planned = merger_of(monkeypatch, changelog(snapshot(1), copied(2, 1)))

    def fail(error: errors.FrazilError) -> list[bool]:
        def apply(plan: MergePlan) -> MergeCommit:
            del plan
            raise error

        monkeypatch.setattr(made, "apply", apply)
        planned.clear()
        with pytest.raises(type(error)):
            made.merge()
        return list(planned)

    doubled = errors.DuplicateKeyError("2 rows of the mirror")
    assert fail(doubled) == [False, True]
    assert fail(doubled) == [False]
    # Another cause, and a store that was away meanwhile.
    gone = errors.StorageError("a file is gone")
    gone.is_gone = True
    assert fail(gone) == [False, True]
    assert fail(errors.StorageError("away")) == [False]
    assert fail(gone) == [False]
    # Another copy may heal it.
    facts = changelog(snapshot(1), copied(2, 1), copied(3, 2))
    monkeypatch.setattr(merger, "load_changelog_facts", lambda _, after: facts)  # noqa: ARG005
    assert fail(gone) == [False, True]


@pytest.mark.fault("N57")
def test_a_mirror_is_made_again_later_if_the_store_was_away_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, planned = merger_of(monkeypatch, changelog(snapshot(1), copied(2, 1)))

    def apply(plan: MergePlan) -> MergeCommit:
        if plan.replaces is None:
            raise errors.DuplicateKeyError("2 rows of the mirror")
        raise errors.StorageError("away")

    made.apply = apply  # type: ignore[method-assign]
    for _ in range(2):
        planned.clear()
        with pytest.raises(errors.StorageError):
            made.merge()
        assert planned == [False, True]


@pytest.mark.fault("N32")
def test_a_rebuild_takes_the_changelog_as_it_is() -> None:
    overwritten = snapshot(2, operation=OVERWRITE, removes=True)
    facts = changelog(snapshot(1), overwritten, snapshot(3))
    there = replace(mirror(at_epoch("1", 0)), problem=errors.RolledBackError("was set back."))
    plan = plan_merge(facts, there, SETTINGS, rebuild=True)
    assert plan is not None
    assert (plan.after, plan.through, plan.replaces) == (None, 3, SeenMarker(None))
    # Not from before the correction, however few rows one commit may take.
    plan = plan_merge(facts, there, replace(SETTINGS, max_rows=1), rebuild=True)
    assert plan is not None
    assert plan.through == 2


@pytest.mark.fault("N32")
def test_a_rebuild_ends_neither_before_the_newest_copy_nor_before_what_was_merged() -> None:
    """Else readers would be set back, and the copy would have to heal the mirror once more."""
    few = replace(SETTINGS, max_rows=1)
    lines = [snapshot(1), snapshot(2), copied(3, 1), snapshot(4)]
    plan = plan_merge(changelog(*lines), mirror(at_epoch("1", 0)), few, rebuild=True)
    assert plan is not None
    assert plan.through == 3
    plan = plan_merge(changelog(*lines), mirror(at_epoch("4", 1)), few, rebuild=True)
    assert plan is not None
    assert plan.through == 4


def test_a_rebuild_does_not_end_before_an_overwrite_that_only_added() -> None:
    added = replace(snapshot(2, operation=OVERWRITE), added_rows=10)
    facts = changelog(snapshot(1, rows=200), added, snapshot(3))
    plan = plan_merge(facts, mirror(at_epoch("1", 0)), SETTINGS, rebuild=True)
    assert plan is not None
    assert plan.through == 2
    # So that the merge after it goes on.
    plan = plan_merge(facts, mirror(at_epoch(str(plan.through), 0)), SETTINGS)
    assert plan is not None
    assert (plan.after, plan.through) == (2, 3)


@pytest.mark.fault("N32")
@pytest.mark.parametrize("rebuild", [True, False])
def test_a_table_that_no_merge_wrote_to_is_not_replaced(*, rebuild: bool) -> None:
    theirs = replace(mirror(None), columns=None)
    with pytest.raises(errors.MarkerLostError, match="5 rows and no marker") as refused:
        plan_merge(changelog(copied(1, 1)), theirs, SETTINGS, rebuild=rebuild)
    assert library_step(refused.value.next_step) == OTHER_MIRROR_STEP


@pytest.mark.fault("N32", "N57")
@pytest.mark.parametrize("rebuild", [True, False])
def test_what_a_newer_frazil_wrote_is_not_replaced(*, rebuild: bool) -> None:
    problem = errors.MarkerLostError("its marker has version 9.", next_step=NEWER_STEP)
    for marker in (None, at_epoch("1", 0)):
        there = replace(mirror(marker), problem=problem, marker_text='{"version": 9}')
        with pytest.raises(errors.MarkerLostError, match="version 9") as refused:
            plan_merge(changelog(snapshot(1), copied(2, 1)), there, SETTINGS, rebuild=rebuild)
        assert library_step(refused.value.next_step) == NEWER_STEP


def test_in_a_notebook_everything_else_is_rebuilt() -> None:
    for step in (None, "frazil resync shop.users"):
        assert library_step(step) == "frazil.merge_table(..., rebuild=True)"
    # Rows that leave columns out would be refused in a mirror made again, too.
    assert library_step(partial_rows(1).next_step) == "set order: append for this table"


def left_by(plan: MergePlan | None, marker: Marker) -> MirrorFacts:
    """The mirror after a merge that made it."""
    assert plan is not None
    return replace(
        mirror(marker),
        schema=plan.schema.mirror,
        columns=plan.schema.columns,
        spec=plan.spec,
        last_column_id=max(each.field.id for each in plan.schema.mirror.columns()),
    )


ID, CITY, NAME = ("id", Primitive.LONG), ("city", Primitive.STRING), ("name", Primitive.STRING)


def made_of(*columns: tuple[str, Primitive]) -> ChangelogFacts:
    """A changelog with these columns, numbered in this order, and a copy of the table."""
    fields = [Field(at, name, type_) for at, (name, type_) in enumerate(columns, start=1)]
    return changelog(copied(1, 1), schema=changelog_schema(tuple(fields), ["id"]))


@pytest.mark.fault("N57")
@pytest.mark.parametrize("rebuild", [True, False])
@pytest.mark.parametrize("order", list(Order))
def test_columns_of_a_recreated_changelog_are_found_by_name(order: Order, *, rebuild: bool) -> None:
    settings = replace(SETTINGS, partition_by=("city",), order=order)
    first = plan_merge(made_of(ID, CITY, NAME), None, settings)
    there = left_by(first, at_epoch("9", 0, source="changelog-0"))
    plan = plan_merge(made_of(NAME, ID, CITY), there, settings, rebuild=rebuild)
    assert plan is not None
    assert first is not None
    ids = {each.name: each.id for each in first.schema.mirror.fields}
    assert {each.name: each.id for each in plan.schema.mirror.fields} == ids
    assert all(target.name == source for target, source in plan.schema.projection)
    # From then on by the ids of the new one.
    again = left_by(plan, at_epoch("1", 1))
    renamed = made_of(("label", Primitive.STRING), ID, CITY)
    plan = plan_merge(replace(renamed, snapshots=appends(1, 1)), again, settings)
    assert plan is not None
    assert plan.schema.changes[-1] == "name is renamed to label"


@pytest.mark.fault("N57")
def test_columns_missing_in_a_recreated_changelog_are_dropped_at_the_source() -> None:
    first = plan_merge(made_of(ID, CITY, NAME), None, SETTINGS)
    there = left_by(first, at_epoch("9", 0, source="changelog-0"))
    age = ("age", Primitive.INT)
    plan = restarted(made_of(ID, age, NAME), there)
    assert plan is not None
    assert set(plan.schema.changes) == {
        "age is added as int",
        "city was dropped at the source and is kept",
    }
    known = decode_columns(plan.schema.columns, table="t")
    assert [each.mirror for each in known.fields if each.dropped] == [2]
    dropping = replace(SETTINGS, on_drop=OnDrop.DROP)
    plan = plan_merge(made_of(ID, age, NAME), there, dropping)
    assert plan is not None
    assert "city is dropped" in plan.schema.changes


@pytest.mark.fault("N30", "N57")
@pytest.mark.parametrize("rebuild", [True, False])
@pytest.mark.parametrize("recorded", ["append", "per_key"])
def test_a_restart_leaves_no_row_that_counts_as_the_highest_sequence(
    recorded: str, *, rebuild: bool
) -> None:
    settings = replace(SETTINGS, order=Order.PER_KEY)
    there = replace(mirror(at_epoch("1", 0)), order=recorded, default_sequence="0005")
    facts = changelog(snapshot(1), copied(2, 1))
    plan = plan_merge(facts, there, settings, rebuild=rebuild)
    assert plan is not None
    assert plan.default_sequence is None
    assert plan.default_sequence_property == {"frazil.order-floor": ""}
    assert not any("order changes" in text for text in plan.schema.changes)
    plan = plan_merge(changelog(*appends(1, 1)), there, settings)
    assert plan is not None
    assert plan.default_sequence is not None
    assert plan.default_sequence_property == {"frazil.order-floor": plan.default_sequence}
    plan = plan_merge(changelog(*appends(1, 1)), mirror(at_epoch("1", 0)), SETTINGS)
    assert plan is not None
    assert plan.default_sequence_property == {}
