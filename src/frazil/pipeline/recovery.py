"""What the process does about each error: the one table.

There is no catch-all row. An error without a row is a defect, and a test iterates the entire family
to find it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING

from frazil import errors

if TYPE_CHECKING:
    from collections.abc import Mapping


class RecoveryAction(StrEnum):
    """What comes next for the table that met the error; the other tables go on."""

    NOW = "now"
    """Plan the work again on what is there now, at once."""
    LATER = "later"
    """Wait with back-off, then try again."""
    NEVER = "never"
    """Pause the table until an operator has acted."""
    INSPECT = "inspect"
    """Read what happened to the table before doing anything else."""
    STOP = "stop"
    """End this process: another one does the work, or a stop was requested."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """The next action, and the one that follows when the attempts are used up.

    ``is_standby``: another process does the work. This one leaves everything alone meanwhile, and
    takes over within a second of its end.
    """

    action: RecoveryAction
    after_attempts: RecoveryAction
    is_standby: bool = False


def _always(action: RecoveryAction) -> Recovery:
    return Recovery(action, after_attempts=action)


# Retrying costs nothing but time, and the cause may pass by itself.
_PATIENTLY = _always(RecoveryAction.LATER)
# A conflict or an unknown outcome that repeats is a rival or an outage: slow down.
_AT_ONCE = Recovery(RecoveryAction.NOW, after_attempts=RecoveryAction.LATER)
_INSPECT_FIRST = Recovery(RecoveryAction.INSPECT, after_attempts=RecoveryAction.LATER)
_ON_STANDBY = replace(_PATIENTLY, is_standby=True)
_ACTION_REQUIRED = _always(RecoveryAction.NEVER)
_STOP = _always(RecoveryAction.STOP)

RECOVERY: Mapping[type[errors.FrazilError], Recovery] = MappingProxyType(
    {
        errors.ConfigError: _ACTION_REQUIRED,
        errors.SourceUnavailableError: _PATIENTLY,
        errors.PermissionError: _ACTION_REQUIRED,
        errors.PositionLostError: _ACTION_REQUIRED,
        errors.SlotBusyError: _ON_STANDBY,
        errors.SourceReplacedError: _ACTION_REQUIRED,
        # The segment may still be on its way; one that never comes requires action.
        errors.MissingSegmentError: Recovery(
            RecoveryAction.LATER, after_attempts=RecoveryAction.NEVER
        ),
        errors.MalformedChangeError: _ACTION_REQUIRED,
        errors.UnsupportedSchemaChangeError: _ACTION_REQUIRED,
        errors.UnrepresentableValueError: _ACTION_REQUIRED,
        errors.TableNotFoundError: _ACTION_REQUIRED,
        errors.StorageError: _PATIENTLY,
        errors.CatalogError: _PATIENTLY,
        errors.WriteFailedError: _PATIENTLY,
        errors.CommitConflictError: _AT_ONCE,
        errors.CommitUnknownError: _INSPECT_FIRST,
        errors.FencedError: _STOP,
        errors.TableReplacedError: _ACTION_REQUIRED,
        errors.MarkerLostError: _ACTION_REQUIRED,
        errors.RolledBackError: _ACTION_REQUIRED,
        errors.OutOfOrderError: _ACTION_REQUIRED,
        errors.DuplicateKeyError: _ACTION_REQUIRED,
        errors.NullKeyError: _ACTION_REQUIRED,
        errors.MissingImageError: _ACTION_REQUIRED,
        errors.EqualityDeletesError: _ACTION_REQUIRED,
        errors.ForeignChangeError: _ACTION_REQUIRED,
        errors.StaleIndexError: _AT_ONCE,
        errors.DamagedIndexError: _AT_ONCE,
        errors.LeaseLostError: _STOP,
        errors.ShutdownRequested: _STOP,
        errors.RuntimeMissingError: _ACTION_REQUIRED,
        errors.ServiceError: _ACTION_REQUIRED,
        # Chance may have had a part in it; one that repeats is not retried for ever.
        errors.DefectError: Recovery(RecoveryAction.LATER, after_attempts=RecoveryAction.NEVER),
    }
)


def recovery_for(error: errors.FrazilError) -> Recovery:
    """The row for this very error. A group, which is never raised, has none: KeyError."""
    return RECOVERY[type(error)]


def may_pass(error: errors.FrazilError) -> bool:
    """Whether trying again may help, without an operator."""
    return recovery_for(error).action not in {RecoveryAction.NEVER, RecoveryAction.STOP}
