"""The base of all sections: frozen, without unknown keys, and checked by their rules."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

RULE = "rule"
DEPENDS = "depends"
DEPTH = "depth"

KeyPath = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Broken:
    """A rule between settings that does not hold: where, and what would be right.

    ``depends`` names the other settings of the rule: when one of those is itself wrong, the
    rule has nothing to say yet.
    """

    location: KeyPath
    sentence: str
    depends: tuple[KeyPath, ...] = ()


class Section(BaseModel):
    """A part of the document; unknown keys are refused and nothing changes after loading."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        # A pydantic error must not carry a value that may be a secret.
        hide_input_in_errors=True,
        # Building forty validators at import would slow down every command.
        defer_build=True,
        # Default paths are relative to the document too.
        validate_default=True,
        # The text below a setting is its description in schema, pages and `frazil init`.
        use_attribute_docstrings=True,
    )

    def broken_rules(self) -> Iterator[Broken]:
        """The rules between settings of this section that do not hold."""
        yield from ()

    @model_validator(mode="after")
    def _keep_rules(self) -> Self:
        raise_broken(type(self).__name__, tuple(self.broken_rules()))
        return self


def defaults(description: str, *, alias: str | None = None) -> Any:  # noqa: ANN401 - as Field
    """A section that may be left out: its defaults are then validated like written values.

    A ready-made instance would not do: its relative paths would not know the document.
    """
    return Field(default_factory=dict, description=description, alias=alias)


def raise_broken(title: str, broken: tuple[Broken, ...]) -> None:
    """Raise one error with all broken rules, each at its own location, if there are any."""
    if not broken:
        return
    details = [
        InitErrorDetails(
            type=PydanticCustomError(
                RULE,
                "{sentence}",
                # The depth is where the section starts that ``depends`` counts from.
                {"sentence": rule.sentence, DEPENDS: rule.depends, DEPTH: len(rule.location)},
            ),
            loc=rule.location,
            input=None,
        )
        for rule in broken
    ]
    raise ValidationError.from_exception_data(title, details, hide_input=True)
