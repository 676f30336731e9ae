"""The status page and /status without a browser: routes, headers, token, secrets."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import httpx
import pytest

from frazil.config.models.observability import Telemetry
from frazil.hooks import ManualClock
from frazil.pipeline.status.json_form import status_from_json
from frazil.telemetry.metrics import Metrics
from frazil.telemetry.redaction import Redactor
from frazil.web.access import HostRule
from frazil.web.app import build_app
from frazil.web.page_view import Advice, advice_of, shares_of
from frazil.web.pages import PAGE_HEADERS, build_pages, configured_app
from frazil.web.readiness import Readiness
from tests.support.status.statuses import NOW, RESYNC, SCENARIOS, running, stopped, table

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.applications import Starlette

    from frazil.pipeline.status.values import PipelineStatus

TOKEN = "a-token-of-some-length"
SECRET = "canary-77aa/'\"x"
LOCAL = "http://127.0.0.1:9093"


def application(
    now: Callable[[], PipelineStatus] = running,
    *,
    token: str | None = None,
    is_local: bool = True,
    names: tuple[str, ...] = (),
) -> Starlette:
    redactor = Redactor([SECRET])
    hosts = HostRule(is_local=is_local, names=names)
    pages = build_pages(now, redactor, token=token, hosts=hosts)
    metrics = Metrics("shop", release="1", redactor=redactor)
    return build_app(metrics, Readiness(), redactor, routes=pages, hosts=hosts)


def send(
    app: Starlette, path: str, *, method: str = "GET", base: str = LOCAL, **headers: str
) -> httpx.Response:
    async def answer() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url=base) as http:
            sent = {name: value.encode() for name, value in headers.items()}
            return await http.request(method, path, headers=sent)  # type: ignore[arg-type]

    return asyncio.run(answer())


def text_in(html: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", html).split())


@pytest.mark.parametrize("name", SCENARIOS)
def test_page_and_json_show_every_scenario(name: str) -> None:
    status = SCENARIOS[name]()
    page = send(application(lambda: status), "/")
    assert page.status_code == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    document = send(application(lambda: status), "/status")
    assert document.headers["content-type"] == "application/json"
    assert status_from_json(document.json()) == status


def test_the_page_shows_every_fact_of_a_stopped_table() -> None:
    shown = text_in(send(application(stopped), "/").text)
    for fact in (
        "1 of 6 tables needs you",
        "Readers of the other 5 tables see everything up to 3.4 s ago.",
        "public.invoices stopped FRZ-SCH-01",
        "column total changed from numeric(12,2) to text",
        "frazil resync public.invoices",
        "Since 41 min ago ; paused until an operator acts",
        "frazil explain FRZ-SCH-01",
        "ingest + merge",
        "up 2 d 4 h",
        "shop_frazil",
        "reserved, active",
        "40 MiB safe for 9.5 GiB more",
        "16/B374D848",
        str(stopped().commits[0].snapshot_id),
        "write 640 ms",
        "241,630 entries, 4.8 MiB, 0 repairs",
        "48,326 update",
        "A column changed its type or the key changed",
    ):
        assert fact in shown, fact


def test_the_page_shows_how_far_a_copy_is_and_why_reading_waits() -> None:
    shown = text_in(send(application(SCENARIOS["copying"]), "/").text)
    assert "42 % copied, 1.6 GiB of 3.8 GiB, 3,812,400 rows, about 6 min 14 s left" in shown
    assert "paused until what was read is written" in shown


def test_empty_states_read_well() -> None:
    shown = text_in(send(application(SCENARIOS["starting"]), "/").text)
    assert "Starting Spark needs a few seconds." in shown
    assert "No tables yet." in shown
    none_yet = text_in(send(application(lambda: replace(running(), tables=())), "/").text)
    assert "They appear here as soon as the source has listed them." in none_yet
    merges = text_in(send(application(SCENARIOS["merge only"]), "/").text)
    assert "Others fill the changelogs; this process merges them." in merges


@pytest.mark.parametrize("path", ["/", "/status", "/assets/status.css", "/assets/status.js"])
def test_every_answer_carries_the_strict_headers(path: str) -> None:
    answer = send(application(), path)
    assert answer.status_code == 200
    for name, value in PAGE_HEADERS.items():
        assert answer.headers[name] == value
    assert answer.headers["x-content-type-options"] == "nosniff"
    kept = "private, max-age=86400, immutable" if "assets" in path else "no-store"
    assert answer.headers["cache-control"] == kept
    assert "unsafe" not in answer.headers["content-security-policy"]


@pytest.mark.parametrize("path", ["/", "/status", "/assets/status.css"])
def test_only_reading_is_served(path: str) -> None:
    assert send(application(), path, method="HEAD").status_code == 200
    for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
        assert send(application(), path, method=method).status_code == 405


@pytest.mark.parametrize(
    "path", ["/assets/", "/assets/nothing.css", "/assets/../pages.py", "/assets/%2e%2e/pages.py"]
)
def test_only_our_files_are_assets(path: str) -> None:
    assert send(application(), path).status_code == 404


def test_the_page_needs_no_style_or_script_of_its_own() -> None:
    html = send(application(stopped), "/").text
    assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:", html)
    assert re.findall(r"<script[^>]*>", html) == [
        f'<script src="{address}" defer>'
        for address in re.findall(r"/assets/status\.js\?v=[0-9a-f]{8}", html)
    ]
    addresses = re.findall(r'(?:src|href)="([^"]+)"', html)
    assert all(address.startswith(("/", "#")) for address in addresses)


def test_names_are_text_wherever_they_stand() -> None:
    html = send(application(SCENARIOS["hostile"]), "/").text
    assert "<script>alert" not in html
    assert "<img" not in html
    assert "<b>bold" not in html
    assert "&lt;script&gt;alert" in html


@pytest.mark.fault("N48")
def test_a_name_turns_no_text_of_the_page_around() -> None:
    name = "public.\u202egnp\x1b[2J"
    status = replace(running(), pipeline=name, tables=(table(name),))
    html = send(application(lambda: status), "/").text
    assert not re.search("[\x1b\u202e]", html)
    answer = send(application(lambda: status), "/status")
    assert not re.search("[\x1b\u202e]", answer.text)
    assert answer.json()["pipeline"] == name
    assert r"public.\u202egnp\x1b[2J" in re.search("<title>(.*?)</title>", html, re.DOTALL)[1]  # type: ignore[index]


def test_secrets_are_shown_nowhere() -> None:
    trouble = replace(
        RESYNC,
        reason=f"connection to postgres://app:other@db failed with {SECRET}",
        remedy=f"`frazil check {SECRET}`",
    )
    one = table(f"public.{SECRET}", trouble=trouble)
    app = application(lambda: replace(running(), tables=(one,), errors={SECRET: 1}))
    for path in ("/", "/status"):
        answer = send(app, path)
        assert "canary" not in answer.text
        assert "app:other" not in answer.text
        assert "postgres://app:***@db failed with ***" in answer.text


@pytest.mark.fault("G13")
def test_with_a_token_pages_ask_for_it_and_probes_do_not() -> None:
    app = application(token=TOKEN, is_local=False)
    for path in ("/", "/status"):
        refused = send(app, path)
        assert refused.status_code == 401
        assert refused.headers["www-authenticate"] == 'Bearer realm="frazil"'
        assert refused.headers["content-security-policy"]
        assert "public.orders" not in refused.text
        assert send(app, path, authorization=f"Bearer {TOKEN}").status_code == 200
        assert send(app, path, authorization=f"bearer {TOKEN} ").status_code == 200
        for wrong in (f"Bearer {TOKEN}x", "Bearer ", f"Basic {TOKEN}", TOKEN, "Bearer é"):
            assert send(app, path, authorization=wrong).status_code == 401
    assert send(app, "/metrics").status_code == 200
    assert send(app, "/healthz").status_code == 200
    assert send(app, "/readyz").status_code == 503
    assert send(app, "/assets/status.css").status_code == 200


def test_a_token_may_be_any_text() -> None:
    app = application(token="süß & 100%", is_local=False)
    assert send(app, "/", authorization="Bearer süß & 100%").status_code == 200
    assert send(app, "/?token=s%C3%BC%C3%9F%20%26%20100%25").status_code == 303
    assert send(app, "/?token=%FF%FE").status_code == 401


def test_a_refusal_says_what_to_do() -> None:
    app = application(token=TOKEN, is_local=False)
    page = send(app, "/", base="http://frazil.shop.example:9093").text
    assert "A token is required" in page
    assert "http://frazil.shop.example:9093/?token=TOKEN" in page
    assert "telemetry.token" in page
    assert send(app, "/status").json() == {
        "error": "the token of telemetry.token is required here.",
        "next": "send it as Authorization: Bearer TOKEN",
    }
    assert "That token is not the right one" in send(app, "/?token=guess").text


def test_a_login_sets_a_cookie_and_takes_the_token_out_of_the_address() -> None:
    app = application(token=TOKEN, is_local=False)
    answer = send(app, f"/?token={TOKEN}")
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"]
    assert "; HttpOnly" in cookie
    assert "; SameSite=strict" in cookie
    assert "Secure" not in cookie
    assert TOKEN not in cookie + answer.text
    shown = cookie.partition(";")[0]
    assert send(app, "/", cookie=shown).status_code == 200
    assert send(app, "/status", cookie=shown).status_code == 200
    assert send(app, "/", cookie=f"{shown}0").status_code == 401
    assert send(application(token="another token", is_local=False), "/", cookie=shown).is_error


def test_a_login_over_tls_keeps_its_cookie_there() -> None:
    app = application(token=TOKEN, is_local=False)
    answer = send(app, f"/?token={TOKEN}", base="https://frazil.shop.example")
    assert "; Secure" in answer.headers["set-cookie"]


@pytest.mark.parametrize(
    ("header", "is_secure"),
    [("https", True), ("HTTPS", True), ("https, http", True), ("http", False), ("", False)],
)
def test_behind_a_proxy_with_tls_the_cookie_stays_there(header: str, *, is_secure: bool) -> None:
    app = application(token=TOKEN, is_local=False)
    answer = send(app, f"/?token={TOKEN}", **{"x-forwarded-proto": header})
    assert ("; Secure" in answer.headers["set-cookie"]) is is_secure


@pytest.mark.fault("G13")
def test_on_loopback_another_name_is_refused() -> None:
    for path in ("/", "/status"):
        answer = send(application(), path, host="attacker.example:9093")
        assert answer.status_code == 421
        assert "public.orders" not in answer.text
        assert "localhost" in answer.text
        assert send(application(is_local=False), path, host="shop.example").status_code == 200
    refused = send(application(token=TOKEN, is_local=False), "/", host="x;touch$IFS/tmp/y")
    assert "touch" not in refused.text


REBOUND = ["/", "/status", "/metrics", "/readyz"]


@pytest.mark.parametrize("path", REBOUND)
def test_every_answer_depends_on_the_host_header(path: str) -> None:
    app = application()
    assert send(app, path, host="attacker.example:9093").status_code == 421
    assert "frazil_build_info" not in send(app, path, host="attacker.example:9093").text
    assert send(app, path, host="127.0.0.1:9093").status_code in {200, 503}
    assert send(app, path, host="localhost").status_code in {200, 503}
    # Kubernetes uses this one with any host name.
    assert send(app, "/healthz", host="attacker.example").status_code == 200


@pytest.mark.parametrize("path", REBOUND)
def test_names_may_be_limited_where_others_can_reach_the_server(path: str) -> None:
    app = application(is_local=False, names=("frazil.shop.svc",))
    assert send(app, path, host="attacker.example").status_code == 421
    for ours in ("frazil.shop.svc:9093", "FRAZIL.shop.svc", "10.1.2.3:9093", "[fd00::1]:9093"):
        assert send(app, path, host=ours).status_code in {200, 503}


@pytest.mark.parametrize(
    "host",
    ["localhost", "localhost:9093", "LOCALHOST", "a.localhost:1", "127.0.0.1:9093", "127.8.0.1",
     "[::1]", "[::1]:9093", "::1"],
)  # fmt: skip
def test_names_of_loopback_are_local(host: str) -> None:
    assert HostRule(is_local=True).allows(host)


@pytest.mark.parametrize(
    "host",
    ["", "localhost.example", "127.0.0.1.example:9093", "example", "10.0.0.1", "[::2]:1", "[",
     "notlocalhost", "localhost@example"],
)  # fmt: skip
def test_other_names_are_not(host: str) -> None:
    assert not HostRule(is_local=True).allows(host)


def test_the_document_says_whether_there_are_pages_and_who_sees_them() -> None:
    def status_of(path: str, **given: object) -> int:
        redactor, telemetry = Redactor(), Telemetry.model_validate(given)
        metrics = Metrics("shop", release="1", redactor=redactor)
        app = configured_app(telemetry, metrics, Readiness(), redactor, running)
        return send(app, path).status_code

    assert [status_of(path, pages=False) for path in ("/", "/status", "/metrics")] == [
        404,
        404,
        200,
    ]
    assert [status_of(path) for path in ("/", "/status", "/metrics")] == [200, 200, 200]
    assert [status_of(path, token=TOKEN) for path in ("/", "/metrics")] == [401, 200]
    assert Telemetry.model_validate({"listen": "[::1]:9"}).is_local
    assert not Telemetry.model_validate({"listen": ":9", "token": TOKEN}).is_local


def test_many_views_within_a_second_cost_as_much_as_one() -> None:
    renders: list[int] = []

    def now() -> PipelineStatus:
        renders.append(1)
        return replace(running(), errors={"FRZ-SRC-01": len(renders)})

    clock = ManualClock(NOW)
    redactor = Redactor()
    pages = build_pages(now, redactor, token=None, hosts=HostRule(is_local=True), clock=clock)
    metrics = Metrics("shop", release="1", redactor=redactor)
    app = build_app(metrics, Readiness(), redactor, routes=pages, hosts=HostRule(is_local=True))
    pages_shown = {send(app, "/").text for _ in range(5)}
    assert (len(pages_shown), len(renders)) == (1, 1)
    clock.advance(1)
    assert send(app, "/").text not in pages_shown
    # A program gets what is.
    assert send(app, "/status").json()["errors"] == {"FRZ-SRC-01": 3}
    assert send(app, "/status").json()["errors"] == {"FRZ-SRC-01": 4}


def test_a_remedy_is_a_command_or_a_sentence_with_commands() -> None:
    assert advice_of(" frazil resync public.users ") == Advice("frazil resync public.users", ())
    assert advice_of("Check it; `frazil check` shows.") == Advice(
        None, ((False, "Check it; "), (True, "frazil check"), (False, " shows."))
    )
    assert advice_of("one ` alone") == Advice(None, ((False, "one ` alone"),))


def test_parts_of_a_merge_fill_the_bar() -> None:
    shares = shares_of({"read": 1.0, "write": 3.0})
    assert [(each.name, each.start, each.width) for each in shares] == [
        ("read", 0.0, 25.0),
        ("write", 25.0, 75.0),
    ]
    assert shares_of({"read": 0.0})[0].width == 0
