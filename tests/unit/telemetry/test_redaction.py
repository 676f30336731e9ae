from __future__ import annotations

import base64
import json
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.telemetry.redaction import Redactor
from frazil.telemetry.secret_patterns import SHORTEST_SECRET

SECRET = "pa$$/w+rd='x\"\n\\é"
MEGABYTE = 1_000_000

secrets = st.text(min_size=SHORTEST_SECRET, max_size=20) | st.text(
    alphabet="ab*•.\\\"'[(+?^$|{%@:/ ", min_size=SHORTEST_SECRET, max_size=12
)


@given(secret=secrets, before=st.text(max_size=20), after=st.text(max_size=20))
def test_a_learnt_secret_is_in_no_redacted_text(secret: str, before: str, after: str) -> None:
    assert secret not in Redactor([secret]).redact(before + secret + after)


@given(
    known=st.lists(secrets, min_size=1, max_size=4),
    order=st.lists(st.integers(0, 3), max_size=6),
    glue=st.text(alphabet="ab*", max_size=3),
)
def test_no_secret_of_several_survives_next_to_another(
    known: list[str], order: list[int], glue: str
) -> None:
    text = glue.join(known[index % len(known)] for index in order)
    redacted = Redactor(known).redact(text)
    assert not any(secret in redacted for secret in known)


@given(secret=secrets)
def test_a_learnt_secret_is_hidden_in_every_encoding(secret: str) -> None:
    redactor = Redactor([secret])
    for encoded in (
        quote(secret, safe=""),
        quote_plus(secret),
        base64.b64encode(secret.encode()).decode(),
        base64.urlsafe_b64encode(secret.encode()).decode(),
        json.dumps(secret)[1:-1],
        json.dumps(json.dumps(secret))[3:-3],
        repr(secret)[1:-1],
        repr(secret.encode())[2:-1],
    ):
        assert encoded not in redactor.redact(f"<{encoded}>"), encoded


@given(text=st.text(max_size=60))
def test_redacting_twice_changes_nothing(text: str) -> None:
    redactor = Redactor(["hunter2"])
    once = redactor.redact(text)
    assert redactor.redact(once) == once


def test_basic_credentials_hide_the_password_whatever_the_user_is() -> None:
    redactor = Redactor(["correct-horse-battery"])
    for user in ("a", "ab", "abc", "abcd"):
        encoded = base64.b64encode(f"{user}:correct-horse-battery".encode()).decode()
        shown = redactor.redact(f"sent {encoded} to host")
        assert "horse" not in str(base64.b64decode(shown.split()[1].replace("***", "AAAA") + "=="))


def test_each_line_of_a_key_file_is_hidden_also_when_something_indents_it() -> None:
    redactor = Redactor(["first-line-of-key\nsecond-line-of-key\n}"])
    shown = redactor.redact("  | first-line-of-key\n  | second-line-of-key\n  | }")
    assert shown == "  | ***\n  | ***\n  | }"


def test_values_shorter_than_four_characters_are_left_alone() -> None:
    assert Redactor(["abc", "", "x"]).redact("abc xyz abc") == "abc xyz abc"


def test_overlapping_secrets_leave_no_tail() -> None:
    assert Redactor(["abcd", "cdefgh"]).redact("<abcdefgh>") == "<***>"


@pytest.mark.parametrize(
    ("known", "text", "shown"),
    [
        # One within the other, whichever begins first or ends last.
        (["abcdefgh", "cdef"], "<abcdefgh>", "<***>"),
        (["abcdefgh", "abcd"], "<abcdefgh>", "<***>"),
        (["abcdefgh", "efgh"], "<abcdefgh>", "<***>"),
        # Adjacent they are one, separated they are two.
        (["abcd", "efgh"], "<abcdefgh>", "<***>"),
        (["abcd", "efgh"], "<abcd-efgh>", "<***-***>"),
        # Three in a chain, of which the first and the last do not touch.
        (["abcd", "cdef", "efgh"], "<abcdefgh>", "<***>"),
        # A secret that overlaps itself.
        (["abab"], "<ababab>", "<***>"),
        (["ab12ab"], "<ab12ab12ab> ab", "<***> ab"),
        (["aaaa"], "<aaaaaaa>aaa", "<***>aaa"),
    ],
)
def test_what_overlaps_is_hidden_from_the_first_to_the_last_character(
    known: list[str], text: str, shown: str
) -> None:
    assert Redactor(known).redact(text) == shown


@given(
    known=st.lists(st.text(alphabet="ab", min_size=SHORTEST_SECRET, max_size=7), min_size=1),
    text=st.text(alphabet="ab", max_size=24),
)
def test_no_character_of_an_occurrence_is_left(known: list[str], text: str) -> None:
    covered = {
        at + offset
        for secret in known
        for at in range(len(text))
        if text.startswith(secret, at)
        for offset in range(len(secret))
    }
    left = [letter for at, letter in enumerate(text) if at not in covered]
    assert [c for c in Redactor(known).redact_known(text) if c != "*"] == left


def test_the_placeholder_shares_no_character_with_a_secret() -> None:
    assert Redactor(["p*ssword"]).redact("is p*ssword") == "is •••"
    every_placeholder = Redactor(["*•█▒░ and more"])
    assert every_placeholder.placeholder not in {"***", "•••", "███", "▒▒▒", "░░░"}


def test_a_connection_string_teaches_its_password() -> None:
    redactor = Redactor(["postgres://app:s3cr%2Ft@db/shop", "host=db password='other one'"])
    assert redactor.redact("tried s3cr%2Ft, s3cr/t and other one") == "tried ***, *** and ***"


def test_bytes_that_are_not_utf8_can_be_learnt() -> None:
    odd = b"secret\xff\xfe".decode("utf-8", "surrogateescape")
    assert Redactor([odd]).redact(f"<{odd}>") == "<***>"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgres://u:p@h/db", "postgres://u:***@h/db"),
        ("postgres://u:p/q@h/db", "postgres://u:***@h/db"),
        ("postgres://u:p@q@h:5432/db", "postgres://u:***@h:5432/db"),
        ("https://abc123@errors.example/1", "https://***@errors.example/1"),
        ("host=h password=hunter2 user=x", "host=h password=*** user=x"),
        ("host=h password='a b' user=x", "host=h password='***' user=x"),
        ("password=a,b)c next", "password=*** next"),
        ("?user=a&password=b&sslmode=c", "?user=a&password=***&sslmode=c"),
        ("Authorization: Bearer abc.def-123", "Authorization: Bearer ***"),
        ('{"Authorization": "Bearer abcd"}', '{"Authorization": "Bearer ***"}'),
        ("curl -H 'bearer 0123456789'", "curl -H 'bearer ***'"),
        ("Basic dXNlcjpwYXNz", "Basic ***"),
        ("s3.secret-access-key=abc/d+e= x", "s3.secret-access-key=*** x"),
        ('{"secretAccessKey": "a\\"b", "x": 1}', '{"secretAccessKey": "***", "x": 1}'),
        ("{'session_token': 'a\\'b', 'x': 1}", "{'session_token': '***', 'x': 1}"),
        (r"{\"api_key\": \"a\\\"b\", \"x\": 1}", r"{\"api_key\": \"***\", \"x\": 1}"),
        ("Map(s3.access-key-id -> abc, r -> eu)", "Map(s3.access-key-id -> ***, r -> eu)"),
        ("{password=abc, user=x}", "{password=***, user=x}"),
        (
            "S3(secret_access_key=SecretStr('abc'), y=1)",
            "S3(secret_access_key=SecretStr('***'), y=1)",
        ),
        ("<SecretAccessKey>abc</SecretAccessKey>", "<SecretAccessKey>***</SecretAccessKey>"),
        ("a?X-Amz-Signature=ab12&X-Amz-Date=1", "a?X-Amz-Signature=***&X-Amz-Date=1"),
        ("a?X-Amz-Credential=ab%2F12&b=1", "a?X-Amz-Credential=***&b=1"),
        ("a?X-Amz-Security-Token=ab12&b=1", "a?X-Amz-Security-Token=***&b=1"),
        ("blob?sv=1&sig=abc%3D&se=2", "blob?sv=1&sig=***&se=2"),
        ("dsn: abc", "dsn: ***"),
        ("Map(header.Cookie -> abc, r -> eu)", "Map(header.Cookie -> ***, r -> eu)"),
        ("{header.Authorization=abc, r=eu}", "{header.Authorization=***, r=eu}"),
        ("{header.X-Api-Key=abc, r=eu}", "{header.X-Api-Key=***, r=eu}"),
        ("{header.X-Anything=abc, r=eu}", "{header.X-Anything=***, r=eu}"),
        ("{s3.sse.key=abc, s3.sse.type=custom}", "{s3.sse.key=***, s3.sse.type=custom}"),
        ("Set-Cookie: abc=def", "Set-Cookie: ***"),
        ("password: hunter2 was refused", "password: *** was refused"),
        ("key AKIAIOSFODNN7EXAMPLE used", "key *** used"),
        ("jwt eyJhbGciOiJIUzI1.eyJzdWIiOiIx.abc-_ end", "jwt *** end"),
        ("-----BEGIN PRIVATE KEY-----\nMIIE\n-----END", "***-----END"),
    ],
)
def test_what_resembles_a_secret_is_hidden(text: str, shown: str) -> None:
    assert Redactor().redact(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "frazil.yaml:3: source.dsn: is required",
        "telemetry.token: must be set when not on loopback",
        "http://host:80/a?mail=a@b.c",
        "abfss://container@account.dfs.core.windows.net/x",
        "postgres://app@db/shop",
        "Basic authentication failed",
        "password=None secret: null token=",
        "disaster=1 position=0/16B3748 snapshot=123",
        "file:///data/lake/metadata/v1.json",
    ],
)
def test_innocent_text_stays_as_it_is(text: str) -> None:
    assert Redactor(["hunter2"]).redact(text) == text


@pytest.mark.parametrize(
    "piece",
    [
        "a",
        "://a:",
        "secret",
        'password="',
        'token=\\"',
        "eyJ",
        "Bearer ",
        "-----BEGIN PRIVATE KEY-----",
    ],
)
def test_a_long_text_of_anything_takes_a_moment(piece: str) -> None:
    redactor = Redactor(["hunter2", "a" * 500, "*" * 10, SECRET])
    text = piece * (MEGABYTE // 4 // len(piece))
    # The time of this process alone: a busy neighbour does not count.
    started = time.process_time()
    redactor.redact(text)
    # Measured at about a fifth of a second; a quadratic expression would take half a minute.
    assert time.process_time() - started < 5


def test_a_structure_is_scrubbed_in_keys_values_and_depth() -> None:
    redactor = Redactor(["hunter2"])
    value = {
        "hunter2": ["hunter2", ("a hunter2", b"hunter2\xff"), {"x": {"hunter2"}}],
        "error": ValueError("hunter2"),
        "password": 123456,
        "token": None,
        "rows": 3,
    }
    assert redactor.scrub(value) == {
        "***": ["***", ("a ***", b"***\xff"), {"x": {"***"}}],
        "error": "ValueError: ***",
        "password": "***",
        "token": None,
        "rows": 3,
    }


def test_objects_keep_their_type_unless_they_show_a_secret() -> None:
    @dataclass
    class Box:
        inside: str

    redactor = Redactor(["hunter2", "20261115"])
    moment = datetime(2026, 11, 15, tzinfo=UTC)
    assert redactor.scrub(moment) is moment
    assert "hunter2" not in str(redactor.scrub(Box("hunter2")))
    assert redactor.scrub(20261115) == "***"


def test_what_refers_to_itself_ends_somewhere() -> None:
    loop: list[object] = []
    loop.append(loop)
    assert "…" in repr(Redactor().scrub(loop))


def test_an_object_that_cannot_be_printed_is_named_by_its_type() -> None:
    class Broken:
        def __repr__(self) -> str:
            raise RuntimeError("hunter2")

    shown = Redactor(["hunter2"]).scrub({"x": [Broken()]})
    assert shown == {"x": ["<Broken without text: RuntimeError>"]}


def test_secrets_may_be_learnt_while_others_redact() -> None:
    redactor = Redactor()
    failures: list[str] = []

    def learn() -> None:
        for number in range(50):
            secret = f"secret-number-{number}"
            redactor.learn([secret])
            if secret in redactor.redact(f"a {secret} b"):
                failures.append(secret)

    threads = [threading.Thread(target=learn) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert redactor.redact("secret-number-0 secret-number-49") == "*** ***"
