"""Values of every type with the extremes of each, and values as Postgres reads them."""

from __future__ import annotations

import uuid
from datetime import date, datetime
from decimal import Decimal as Number
from typing import TYPE_CHECKING

from frazil.model.postgres.types import ArrayForm, Form
from tests.support.postgres.printing import array_text, float_text, timestamp_text

if TYPE_CHECKING:
    from frazil.model.postgres.types import ColumnPlan

SETUP = """
create type mood as enum ('sad', 'it''s "ok"');
create type pair as (number int, word text);
create domain price as numeric(12, 2);
create domain dear as price check (value > 100);
create domain some_ints as int[];
alter type mood add value 'added, later';
"""

FAR_TIMES = ["infinity", "-infinity", "4714-11-24 BC", "0044-03-15 BC", "0001-12-31 BC"]
LATE_TIMES = [*FAR_TIMES, "10000-01-01", "294276-12-31 23:59:59.999999"]
TIMES = ["0001-01-01", "9999-12-31 23:59:59.999999", "1970-01-01", "1999-12-31 12:00:00.5"]
LISTS = ["{}", "{NULL}", "{NULL,NULL}"]

# Type, values that fit, and values that Iceberg's type does not have.
MATRIX: list[tuple[str, list[str], list[str]]] = [
    ("bool", ["true", "false"], []),
    ("int2", ["-32768", "0", "32767"], []),
    ("int4", ["-2147483648", "2147483647"], []),
    ("int8", ["-9223372036854775808", "9223372036854775807"], []),
    ("oid", ["0", "4294967295"], []),
    (
        "float4",
        ["NaN", "Infinity", "-Infinity", "-0", "1e-45", "3.4028235e38", "0.1", "16777217", "1e6"],
        [],
    ),
    (
        "float8",
        ["NaN", "Infinity", "-Infinity", "-0", "5e-324", "1.7976931348623157e308", "0.1", "1e15"],
        [],
    ),
    ("text", ["", "NULL", "\\N", "\\.", "a\nb\r\n\tc", '"', "żółw 🐢", "'"], []),
    ("varchar(3)", ["", "abc", "ab "], []),
    ("char(5)", ["", "ab", "abcde"], []),
    ('"char"', ["a", "\\303"], []),
    ("name", ["a name"], []),
    ("mood", ["sad", 'it\'s "ok"', "added, later"], []),
    ("numeric", ["NaN", "Infinity", "-Infinity", "1e40", "1e-1000", "1.500", "-0", "9" * 1000], []),
    ("numeric(10,2)", ["0", "-0", "-12345678.9", "99999999.99"], ["NaN"]),
    ("numeric(38,0)", ["9" * 38, "-" + "9" * 38], ["NaN"]),
    ("numeric(38,38)", ["0." + "9" * 38, "-0.1", "0"], ["NaN"]),
    ("numeric(2,-3)", ["99000", "-1499"], ["NaN"]),
    ("numeric(3,5)", ["0.00999", "-0.00001"], ["NaN"]),
    ("numeric(39,2)", ["NaN", "1.5"], []),
    ("numeric(1000,500)", ["1.5", "-1e499"], []),
    ("price", ["1.5", "9999999999.99"], ["NaN"]),
    ("dear", ["100.01"], ["NaN"]),
    ("date", [each[:10] for each in TIMES], [*FAR_TIMES, "10000-01-01", "5874897-12-31"]),
    ("timestamp", TIMES, LATE_TIMES),
    ("timestamp(0)", ["1999-12-31 23:59:59.5"], ["infinity"]),
    ("timestamptz", TIMES, LATE_TIMES),
    ("timestamptz", ["2020-06-01 12:00:00+05:30", "0001-01-01 00:00:00-14"], []),
    ("time", ["24:00:00", "00:00:00", "23:59:59.999999", "12:00:00.5"], []),
    ("timetz", ["24:00:00-15:59:59", "12:00:00+05:30"], []),
    ("interval", ["1 year -2 mons +3 days -04:05:06.789", "0", "-178000000 years"], []),
    ("uuid", ["00000000-0000-0000-0000-000000000000", "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF"], []),
    ("json", ["null", '{"b": 1,   "a": [1, 2], "a": "\\u00e9"}', '""', "1e400"], []),
    ("jsonb", ["null", '{"b":1,"a":[1,2]}', '"x"'], []),
    ("bytea", ["", "\\x00", "\\xdeadbeef5c78"], []),
    ("money", ["-1234.56", "92233720368547758.07"], []),
    ("inet", ["192.168.0.1/24", "::1"], []),
    ("cidr", ["10.0.0.0/8"], []),
    ("macaddr", ["08:00:2b:01:02:03"], []),
    ("bit(3)", ["101"], []),
    ("varbit", ["", "1"], []),
    ("point", ["(1,2)", "(-0,Infinity)"], []),
    ("box", ["(1,1),(0,0)"], []),
    ("polygon", ["((0,0),(1,1),(1,0))"], []),
    ("tsvector", ["'a':1A 'fat':2B,4C"], []),
    ("pg_lsn", ["FFFFFFFF/FFFFFFFF"], []),
    ("pair", ['(1,"a, ""b""")', "(,)", '(1,"")'], []),
    ("int4range", ["empty", "[1,5)", "(,)"], []),
    ("tstzrange", ["[2020-01-01,infinity]"], []),
    ("int4multirange", ["{}", "{[1,3),[5,7)}"], []),
    ("tsrange", ["[-infinity,0044-03-15 BC]", "(,)"], []),
    ("daterange", ["[2020-01-01,2020-01-02]"], []),
    ("nummultirange", ["{[1.50,NaN]}"], []),
    ("tsquery", ["'fat' & !('rat' | 'a b':*)"], []),
    ("jsonpath", ['$."a"[*]?(@ > 1)'], []),
    ("macaddr8", ["08:00:2b:01:02:03:04:05"], []),
    ("circle", ["<(1,2),3>"], []),
    ("int2vector", ["1 2 3"], []),
    ("regclass", ["pg_class", "information_schema.tables"], []),
    ("int4[]", [*LISTS, "{1,NULL,-3}"], ["[2:4]={1,2,3}", "{{1,2},{3,4}}", "[0:0]={NULL}"]),
    ("text[]", [*LISTS, '{"",NULL,"NULL","null"," ","a,b","{}","\\"\\\\","ü\n"}'], ["{{a},{b}}"]),
    ("bool[]", [*LISTS, "{t,f,NULL}"], []),
    ("float8[]", ["{NaN,-0,Infinity,5e-324}"], []),
    ("numeric(10,2)[]", ["{1.5,NULL}"], ["{1.5,NaN}"]),
    ("dear[]", ["{100.5,NULL}"], ["{NaN}"]),
    ("date[]", ["{2020-01-01,NULL}"], ["{2020-01-01,infinity}", '{"0044-03-15 BC"}']),
    ("timestamptz[]", ['{"2020-01-01 00:00:00.5",NULL}'], ["{infinity}"]),
    ("timestamp[]", ['{"2020-01-01 00:00:00.5",NULL}'], ["{-infinity}"]),
    ("uuid[]", ["{00112233-4455-6677-8899-aabbccddeeff,NULL}"], []),
    ("bytea[]", ['{"\\\\xdeadbeef",NULL,"\\\\x"}'], []),
    ("json[]", ['{"{\\"a\\": [1, null]}",null,NULL}'], []),
    ("mood[]", ['{sad,"added, later",NULL}'], []),
    ("pair[]", ['{"(1,\\"a b\\")",NULL}'], []),
    ("box[]", ["{(1,1),(0,0);(3,3),(2,2)}"], []),
    ("some_ints", ["{1,NULL}"], ["{{1}}", "[0:0]={5}"]),
    ("some_ints[]", ['{"{1,2}","[0:0]={3}",NULL}'], []),
]  # fmt: skip


# The package of Postgres 16 comes without extensions.
EXTENSIONS = {
    "citext": ["MiXeD", ""],
    "hstore": ['a=>1, b=>NULL, "c d"=>"\\""', ""],
    "ltree": ["Top.Science"],
    "citext[]": ['{MiXeD,"a b",NULL}'],
}

# Expressions whose values fit; the driver reads them in Postgres's binary form.
RANDOM = {
    "int8": "(random() * 1e18)::int8 * (case when random() < 0.5 then 1 else -9 end)",
    "float8": "(random() - 0.5) * 10.0::float8 ^ (random() * 600 - 300)",
    "float4": "((random() - 0.5) * 10.0::float8 ^ (random() * 74 - 37))::float4",
    "numeric(20,6)": "((random() - 0.5) * 10 ^ (random() * 14))::numeric(20,6)",
    "date": "date '0001-01-01' + (random() * 3652058)::int",
    "timestamp": "timestamp '0001-01-01' + random() * interval '9998 years'",
    "timestamptz": "timestamptz '0001-01-01 00:00:00+00' + random() * interval '9998 years'",
    "bytea": "decode(substr(md5(random()::text), 1, 2 * (random() * 16)::int), 'hex')",
}


def printed(value: object, plan: ColumnPlan) -> str:
    """As text that Postgres takes for the value."""
    if isinstance(plan.form, ArrayForm):
        assert isinstance(value, list)
        elements = [None if each is None else scalar(each, plan.form.element) for each in value]
        return array_text(elements, plan.form.delimiter)
    return scalar(value, plan.form)


def scalar(value: object, form: Form) -> str:
    match value:
        case bool():
            return "t" if value else "f"
        case float():
            return float_text(value, width=32 if form is Form.REAL else 64)
        case bytes() if form is Form.UUID:
            return str(uuid.UUID(bytes=value))
        case bytes():
            return f"\\x{value.hex()}"
        case datetime():
            return timestamp_text(value) + ("+00" if form is Form.TIMESTAMPTZ else "")
        case date() | Number() | int() | str():
            return str(value)
        case _:
            raise AssertionError(type(value))
