"""What Postgres says about a column's type, and what the column becomes in Iceberg.

Built-in types are known by their OID, which never changes, not by their name, which any user may
give to a type of their own. Everything that is not in the table below is text as Postgres prints
it: that loses nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from frazil.errors import ConfigError, UnsupportedSchemaChangeError
from frazil.model.policy import OnUnrepresentable
from frazil.model.schema.types import WIDEST_DECIMAL, Decimal, List, Primitive, list_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from frazil.model.schema.types import Type

NUMERIC_OID = 1700
NO_MODIFIER = -1

# Postgres adds its header's four bytes to the modifier of a numeric.
_HEADER = 4
# Since Postgres 15 a scale is eleven bits with a sign; older ones never used the eleventh.
_SCALE_BITS = 0x7FF
_SCALE_SIGN = 0x400


class TypeKind(StrEnum):
    """What sort of type it is: ``pg_type.typtype``, and ``a`` for what is printed as an array.

    That is a type whose ``typoutput`` is ``array_out``. An element type or the subscript handler of
    arrays proves nothing: ``int2vector`` has both and is printed without braces.
    """

    BASE = "b"
    ARRAY = "a"
    COMPOSITE = "c"
    DOMAIN = "d"
    ENUM = "e"
    MULTIRANGE = "m"
    PSEUDO = "p"
    RANGE = "r"


@dataclass(frozen=True, slots=True)
class PostgresType:
    """A column's type; ``inner`` is a domain's base or an array's element, and None otherwise.

    ``delimiter`` is what is between values of this type in an array.
    """

    oid: int
    name: str
    kind: TypeKind = TypeKind.BASE
    modifier: int = NO_MODIFIER
    inner: PostgresType | None = None
    delimiter: str = ","

    @property
    def behind_domains(self) -> PostgresType:
        """The type that decides how values are printed."""
        if self.kind is TypeKind.DOMAIN and self.inner is not None:
            return self.inner.behind_domains
        return self


@dataclass(frozen=True, slots=True)
class TypeRow:
    """A row of ``pg_type``: ``inner`` is ``typbasetype`` of a domain or ``typelem`` of an array."""

    oid: int
    name: str
    kind: TypeKind
    inner: int = 0
    modifier: int = NO_MODIFIER
    delimiter: str = ","


def resolve_type(oid: int, modifier: int, rows: Mapping[int, TypeRow]) -> PostgresType:
    """The type of a column with this OID and modifier.

    Raises UnsupportedSchemaChangeError when a type it is made of is not among the rows.
    """
    row = rows.get(oid)
    if row is None:
        message = f"the Postgres type with OID {oid} is not in the catalog that was read"
        raise UnsupportedSchemaChangeError(message)
    inner = None
    if row.kind is TypeKind.DOMAIN:
        inner = resolve_type(row.inner, row.modifier, rows)
    elif row.kind is TypeKind.ARRAY:
        # The modifier of numeric(10,2)[] is its elements'.
        inner = resolve_type(row.inner, modifier, rows)
    return PostgresType(oid, row.name, row.kind, modifier, inner, row.delimiter)


class Form(StrEnum):
    """How the text of a value is to be read."""

    AS_PRINTED = "as printed"
    BOOLEAN = "boolean"
    INTEGER = "integer"
    # Four and eight bytes are apart: the text of one, read as the other, is another number.
    REAL = "real"
    DOUBLE = "double"
    NUMERIC = "numeric"
    DATE = "date"
    TIMESTAMP = "timestamp"
    TIMESTAMPTZ = "timestamptz"
    UUID = "uuid"
    BYTEA = "bytea"


@dataclass(frozen=True, slots=True)
class ArrayForm:
    """An array of values of one form."""

    element: Form
    delimiter: str = ","


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """One column: its type in Iceberg, and how the text of its values gets there.

    ``source`` is the name of its type at the source.
    """

    name: str
    source: str
    type: Type
    form: Form | ArrayForm
    on_unrepresentable: OnUnrepresentable = OnUnrepresentable.FAIL


@dataclass(frozen=True, slots=True)
class _Mapping:
    """A built-in type: how it is read, what it becomes, and what else may be declared."""

    form: Form
    type: Primitive
    wider: Primitive | None = None


_INT = _Mapping(Form.INTEGER, Primitive.INT, wider=Primitive.LONG)
_LONG = _Mapping(Form.INTEGER, Primitive.LONG)
_TEXT = _Mapping(Form.AS_PRINTED, Primitive.STRING)

_BUILT_IN: Mapping[int, _Mapping] = {
    16: _Mapping(Form.BOOLEAN, Primitive.BOOLEAN),
    17: _Mapping(Form.BYTEA, Primitive.BINARY),
    20: _LONG,
    21: _INT,
    23: _INT,
    26: _LONG,
    700: _Mapping(Form.REAL, Primitive.FLOAT, wider=Primitive.DOUBLE),
    701: _Mapping(Form.DOUBLE, Primitive.DOUBLE),
    1082: _Mapping(Form.DATE, Primitive.DATE),
    # Declared as timestamptz, its wall clock is taken to be UTC's.
    1114: _Mapping(Form.TIMESTAMP, Primitive.TIMESTAMP, wider=Primitive.TIMESTAMPTZ),
    1184: _Mapping(Form.TIMESTAMPTZ, Primitive.TIMESTAMPTZ),
    2950: _Mapping(Form.UUID, Primitive.UUID),
}

# What these print may lie outside Iceberg's types; the others always fit.
_MAY_NOT_FIT = frozenset({Form.NUMERIC, Form.DATE, Form.TIMESTAMP, Form.TIMESTAMPTZ})


def plan_column(
    name: str,
    type_: PostgresType,
    *,
    declared: Type | None = None,
    on_unrepresentable: OnUnrepresentable = OnUnrepresentable.FAIL,
    element_id: int = 0,
) -> ColumnPlan:
    """What a column of this type becomes.

    Under ``string`` a column whose type has values that Iceberg lacks is text altogether. A
    declared type is kept whatever the policy: what does not fit it is refused then, or null.
    ``element_id`` is the field id of an array's elements, for a table that exists already.
    Raises ConfigError when the declared type cannot hold what the column may hold.
    """
    printed = type_.behind_domains
    if declared is None:
        type_found, form = _mapped(printed, element_id)
        may_not_fit = isinstance(form, ArrayForm) or form in _MAY_NOT_FIT
        if on_unrepresentable is OnUnrepresentable.STRING and may_not_fit:
            type_found, form = Primitive.STRING, Form.AS_PRINTED
    else:
        type_found = declared
        found = _declared_form(printed, declared)
        if found is None:
            raise _undeclarable(name, type_, declared)
        form = found
    return ColumnPlan(name, type_.name, type_found, form, on_unrepresentable)


def numeric_decimal(modifier: int) -> Decimal | None:
    """The decimal that holds every number of a numeric with this modifier; None: there is none.

    ``numeric(2,-3)`` counts thousands, up to 99000; ``numeric(3,5)`` has two zeros behind the
    point before its first digit.
    """
    if modifier < _HEADER:
        return None
    packed = modifier - _HEADER
    precision = packed >> 16
    scale = ((packed & _SCALE_BITS) ^ _SCALE_SIGN) - _SCALE_SIGN
    widest = precision - scale if scale < 0 else max(precision, scale)
    return Decimal(widest, max(scale, 0)) if widest <= WIDEST_DECIMAL else None


def _mapped(type_: PostgresType, element_id: int) -> tuple[Type, Form | ArrayForm]:
    if type_.kind is TypeKind.ARRAY and type_.inner is not None:
        element, form = _mapped_scalar(type_.inner.behind_domains)
        return list_of(element_id, element), ArrayForm(form, type_.inner.delimiter)
    return _mapped_scalar(type_)


def _mapped_scalar(type_: PostgresType) -> tuple[Type, Form]:
    """The type of a value that is not a list; an array inside an array is text."""
    if type_.oid == NUMERIC_OID:
        decimal = numeric_decimal(type_.modifier)
        return (Primitive.STRING, Form.AS_PRINTED) if decimal is None else (decimal, Form.NUMERIC)
    found = _BUILT_IN.get(type_.oid, _TEXT)
    return found.type, found.form


def _declared_form(type_: PostgresType, declared: Type) -> Form | ArrayForm | None:
    if declared is Primitive.STRING:
        return Form.AS_PRINTED
    if not isinstance(declared, List):
        return _declared_scalar(type_, declared)
    if type_.kind is not TypeKind.ARRAY or type_.inner is None:
        return None
    inner = type_.inner.behind_domains
    form = _declared_form(inner, declared.element.type)
    return ArrayForm(form, type_.inner.delimiter) if isinstance(form, Form) else None


def _declared_scalar(type_: PostgresType, declared: Type) -> Form | None:
    if type_.oid == NUMERIC_OID:
        return Form.NUMERIC if isinstance(declared, Decimal) else None
    found = _BUILT_IN.get(type_.oid)
    return found.form if found is not None and declared in {found.type, found.wider} else None


def _undeclarable(name: str, type_: PostgresType, declared: Type) -> ConfigError:
    message = (
        f"column {name!r} has the Postgres type {type_.name}, whose values a declared "
        f"{declared} cannot hold"
    )
    step = f"leave the type of {name!r} out, or declare it as string"
    return ConfigError(message, mistakes=(message,), next_step=step)
