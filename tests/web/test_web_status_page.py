"""The status page in a real browser."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import pytest
from playwright.sync_api import expect

from frazil.pipeline.status.values import Phase
from tests.support.status.page_measuring import (
    CONTRASTS,
    CONTROLS,
    FOCUSED,
    MARK_CONTRASTS,
    OVERFLOW,
)
from tests.support.status.statuses import HOSTILE, LONG, RESYNC, SCENARIOS, running, stopped, table

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.web.conftest import Shown

# WCAG 2 AA: text, and marks that carry a meaning.
TEXT_CONTRAST = 4.5
MARK_CONTRAST = 3.0
PHONE = 360
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


# A page that brings itself up to date more often than for people, and loads itself again.
follows = pytest.mark.parametrize("refresh_seconds", [(0.2, 1)])


def open_all(page: Page) -> None:
    page.evaluate("() => document.querySelectorAll('details').forEach((each) => each.open = true)")


@pytest.mark.parametrize("name", SCENARIOS)
def test_it_loads_with_one_heading_and_its_landmarks(shown: Shown, name: str) -> None:
    shown.status = SCENARIOS[name]()
    page = shown.open()
    expect(page.get_by_role("heading", level=1)).to_have_text(shown.status.pipeline)
    for landmark in ("banner", "main", "contentinfo"):
        expect(page.get_by_role(landmark)).to_have_count(1)
    expect(page.locator("#tables li")).to_have_count(len(shown.status.tables))


@follows
def test_it_follows_the_pipeline_without_being_loaded_again(shown: Shown) -> None:
    page = shown.open()
    page.evaluate("() => { window.isTheSame = true }")
    expect(page.get_by_text("Following 5 tables")).to_be_visible()
    shown.status = stopped()
    expect(page.get_by_text("1 of 6 tables needs you")).to_be_visible()
    expect(page).to_have_title("1 of 6 tables needs you · shop")
    expect(page.get_by_role("article")).to_have_count(2)
    expect(page.locator("link[rel=icon]")).to_have_attribute("href", re.compile("stopped"))
    shown.status = running()
    expect(page.get_by_role("article")).to_have_count(0)
    expect(page.locator("#tables li")).to_have_count(5)
    assert page.evaluate("() => window.isTheSame")


@follows
def test_what_a_reader_does_is_left_alone(shown: Shown) -> None:
    page = shown.open()
    row = page.locator("details").nth(2)
    row.locator("summary").focus()
    page.keyboard.press("Enter")
    expect(row).to_have_attribute("open", "")
    page.evaluate("() => scrollTo(0, 300)")
    # Another table comes before it, and its own figures change.
    before = running().tables
    shown.status = replace(
        running(),
        tables=(table("public.a"), *before[:2], replace(before[2], lag_seconds=77.0), *before[3:]),
    )
    expect(page.get_by_text("1 min 17 s").first).to_be_visible()
    opened = page.locator("details[open]")
    expect(opened).to_have_count(1)
    expect(opened.locator("summary")).to_contain_text("public.order_lines")
    expect(opened.locator("summary")).to_be_focused()
    assert page.evaluate("() => scrollY") > 200


@follows
def test_a_process_that_went_away_is_shown(shown: Shown) -> None:
    page = shown.open()
    page.context.route("**/*", lambda route: route.abort())
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("The process does not answer.")
    page.context.unroute_all()
    expect(alert).to_be_hidden()
    # The browser says itself that it could not connect.
    shown.complaints[:] = [each for each in shown.complaints if "ERR_FAILED" not in each]


def test_without_a_script_everything_is_there(shown: Shown) -> None:
    shown.status = stopped()
    page = shown.open(java_script_enabled=False)
    expect(page.get_by_text("1 of 6 tables needs you")).to_be_visible()
    expect(page.get_by_role("button", name="Copy")).to_have_count(0)
    page.locator("summary").first.click()
    expect(page.get_by_text("Last commits", exact=True).first).to_be_visible()


@follows
def test_without_a_script_it_is_loaded_again(shown: Shown) -> None:
    shown.status = stopped()
    page = shown.open(java_script_enabled=False)
    reload = page.locator("head noscript meta[http-equiv=refresh]")
    expect(reload).to_have_attribute("content", "1")
    expect(page.get_by_text("1 of 6 tables needs you")).to_be_visible()
    shown.status = running()
    expect(page.get_by_text("Following 5 tables")).to_be_visible()


@pytest.mark.parametrize("name", ["starting", "copying", "stopped", "unreachable"])
def test_every_text_and_mark_has_contrast_in_both_schemes(shown: Shown, name: str) -> None:
    shown.status = SCENARIOS[name]()
    page = shown.open()
    open_all(page)
    backgrounds = set()
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme)
        backgrounds.add(page.evaluate("() => getComputedStyle(document.body).backgroundColor"))
        texts = page.evaluate(CONTRASTS)
        assert len(texts) > 10
        assert [each for each in texts if each["ratio"] < TEXT_CONTRAST] == []
        marks = page.evaluate(MARK_CONTRASTS)
        assert marks
        assert [each for each in marks if each["ratio"] < MARK_CONTRAST] == []
    assert len(backgrounds) == 2


def test_the_measurement_of_contrast_bites(shown: Shown) -> None:
    page = shown.open(color_scheme="light")
    page.evaluate("() => { document.querySelector('h1').style.color = '#8a949e' }")
    faint = [each["text"] for each in page.evaluate(CONTRASTS) if each["ratio"] < TEXT_CONTRAST]
    assert faint == ["shop"]


def test_the_keyboard_reaches_every_control_and_shows_where_it_is(shown: Shown) -> None:
    shown.status = stopped()
    page = shown.open()
    page.locator("details").first.evaluate("(each) => { each.open = true }")
    reached = []
    for _ in range(page.evaluate(CONTROLS)):
        page.keyboard.press("Tab")
        reached.append(page.evaluate(FOCUSED))
    assert None not in reached
    assert [each for each in reached if each["outline"] < 2 or not each["inView"]] == []
    assert reached[0]["what"] == "A Skip to the tables"
    page.keyboard.press("Tab")
    assert page.evaluate(FOCUSED) is None or reached[0] == page.evaluate(FOCUSED)


def test_the_skip_link_leads_to_the_tables(shown: Shown) -> None:
    page = shown.open()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator("#tables")).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.locator("summary").first).to_be_focused()


@pytest.mark.parametrize("name", SCENARIOS)
def test_nothing_is_wider_than_the_screen(shown: Shown, name: str) -> None:
    shown.status = SCENARIOS[name]()
    page = shown.open(width=PHONE)
    assert page.evaluate(OVERFLOW) == 0
    open_all(page)
    for width in (PHONE, 320, 700, 1180):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate(OVERFLOW) == 0, width


def test_on_a_phone_every_figure_has_its_name(shown: Shown) -> None:
    page = shown.open(width=PHONE)
    row = page.locator("summary").first
    for label in ("Behind", "Rows", "Last commit", "Next merge"):
        expect(row.get_by_text(label)).to_be_visible()
    expect(page.locator(".columns")).to_be_hidden()


@follows
def test_names_that_would_like_to_be_html_are_text(shown: Shown) -> None:
    shown.status = SCENARIOS["hostile"]()
    page = shown.open()
    open_all(page)
    asked: list[str] = []
    page.on("dialog", lambda dialog: asked.append(dialog.message))
    names = page.locator("summary .name").all_text_contents()
    assert names == [HOSTILE, LONG]
    assert page.locator("img, main script, b").count() == 0
    # Also when they come with a refresh.
    tables = (*shown.status.tables, table(f"{HOSTILE} again", phase=Phase.WAITING))
    shown.status = replace(shown.status, tables=tables)
    expect(page.locator("summary .name")).to_have_count(3)
    assert page.locator("img, main script, b").count() == 0
    assert asked == []


def test_a_command_is_copied_as_it_must_be_typed(shown: Shown) -> None:
    shown.status = stopped()
    page = shown.open(permissions=["clipboard-read", "clipboard-write"])
    button = page.locator("button.copy").first
    expect(button).to_have_accessible_name("Copy the command")
    button.click()
    expect(button).to_contain_text("Copied")
    assert page.evaluate("() => navigator.clipboard.readText()") == RESYNC.remedy


class TestWithAToken:
    @pytest.fixture
    def token(self) -> str | None:
        return "a-token-of-some-length"

    @follows
    def test_a_login_shows_the_page_and_leaves_no_token(self, shown: Shown) -> None:
        page = shown.open()
        expect(page.get_by_role("heading")).to_have_text("A token is required")
        page.goto(f"http://{shown.address}/?token=a-token-of-some-length")
        assert page.url == f"http://{shown.address}/"
        expect(page.get_by_text("Following 5 tables")).to_be_visible()
        shown.status = stopped()
        expect(page.get_by_text("1 of 6 tables needs you")).to_be_visible()
        assert page.evaluate("() => document.cookie") == ""
        assert page.context.cookies()[0].get("sameSite") == "Strict"
        # The browser says that the first answer was 401.
        shown.complaints[:] = [each for each in shown.complaints if "401" not in each]

    def test_the_refusal_has_contrast_and_fits_a_phone(self, shown: Shown) -> None:
        page = shown.open(width=PHONE)
        assert page.evaluate(OVERFLOW) == 0
        texts = page.evaluate(CONTRASTS)
        assert [each for each in texts if each["ratio"] < TEXT_CONTRAST] == []
        shown.complaints[:] = [each for each in shown.complaints if "401" not in each]
