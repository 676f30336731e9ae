"""Everything that can be written wrongly, and exactly what is said about it."""

from __future__ import annotations

from pathlib import Path

import pytest

from frazil.config import load_config
from frazil.errors import ConfigError

CASES = Path(__file__).with_name("mistakes.txt")
ENVIRON = {"SECRET_WORD": "hunter2"}


def read_cases() -> dict[str, tuple[str, tuple[str, ...]]]:
    cases = {}
    for block in CASES.read_text(encoding="utf-8").split("\n=== ")[1:]:
        name, _, rest = block.partition("\n")
        document, _, mistakes = rest.partition("--- mistakes\n")
        cases[name] = (document, tuple(mistakes.strip().split("\n")))
    return cases


def mistakes_in(document: str, folder: Path, environ: dict[str, str]) -> tuple[str, ...]:
    (folder / "c.yaml").write_text(document, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_config(Path("c.yaml"), environ=environ)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    for line in caught.value.mistakes:
        assert line in str(caught.value)
    return caught.value.mistakes


def test_the_table_of_mistakes_is_long_and_has_no_name_twice() -> None:
    text = CASES.read_text(encoding="utf-8")
    assert len(read_cases()) == text.count("\n=== ") >= 80


@pytest.mark.fault("G1", "G2")
@pytest.mark.parametrize("name", read_cases())
def test_a_mistake_is_reported_with_line_path_and_what_is_allowed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    document, expected = read_cases()[name]
    found = mistakes_in(document, tmp_path, ENVIRON)
    assert found == tuple(line.replace("{here}", str(tmp_path)) for line in expected)
    assert "hunter2" not in " ".join(found)


@pytest.mark.fault("N19")
def test_two_topics_never_become_one_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    document, (found, _) = read_cases()["two topics and one table"]
    assert found in mistakes_in(document, tmp_path, ENVIRON)


@pytest.mark.fault("G1")
def test_all_mistakes_are_reported_at_once_in_the_order_of_the_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    document = """\
pipeline: Shop
catalog:
  kind: rest
  uri: c
source:
  kind: postgres
  dns: ${DATABASE_URL}
  copy: {connections: 0}
tables:
  - mirror: public.users
    deletes: aply
  - mirror: public.users
  - changelog: x
merge: {interval: 5}
telemetry:
  listen: 0.0.0.0:9093
  log: {level: verbose}
retry: {base: 1m, max: 1s}
"""
    found = mistakes_in(document, tmp_path, {"FRAZIL__MERGE__MAX_ROW": "1"})
    locations = [line.partition(": ")[0] + " " + line.split(": ")[1] for line in found]
    assert locations == [
        "c.yaml:1 pipeline",
        "c.yaml:4 catalog.uri",
        "c.yaml:5 source.dsn",
        "c.yaml:7 source.dns",
        "c.yaml:8 source.copy.connections",
        "c.yaml:11 tables[0].deletes",
        "c.yaml:12 tables[1].mirror",
        "c.yaml:13 tables[2].mirror",
        "c.yaml:13 tables[2].changelog",
        "c.yaml:14 merge.interval",
        "c.yaml:15 telemetry.token",
        "c.yaml:17 telemetry.log.level",
        "c.yaml:18 retry.max",
        "environment FRAZIL__MERGE__MAX_ROW merge.max_row",
    ]


def test_a_rule_is_silent_about_a_setting_that_is_wrong_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    document = """\
pipeline: shop
catalog: {kind: rest, uri: "https://c"}
source:
  kind: buffer
  dsn: postgresql://h/d
  backpressure: {high: lots, low: 9000}
"""
    found = mistakes_in(document, tmp_path, {})
    assert [line.split(": ")[1] for line in found] == ["source.backpressure.high"]


def test_without_a_usable_source_nothing_is_said_about_tables_needing_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    document = """\
pipeline: shop
catalog: {kind: rest, uri: "https://c"}
source: {kind: postgres}
tables:
  - mirror: public.users
"""
    found = mistakes_in(document, tmp_path, {})
    assert found == ("c.yaml:3: source.dsn: is required: connection string of the database",)


def test_a_hundred_mistakes_are_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    document = "pipeline: shop\n" + "".join(f"section_{i}: 1\n" for i in range(500))
    assert len(mistakes_in(document, tmp_path, {})) <= 101


BYTE_ORDER_MARK = "starts with a byte order mark; save it as UTF-8 without one"
NO_DOCUMENTS = {
    "bytes": (b"a: \xff", "is not UTF-8 text: byte 4 does not belong to a character"),
    "a NUL": (b"a: b\0", "holds a NUL character; it must be plain text"),
    "a mark": (b"\xef\xbb\xbfa: b", BYTE_ORDER_MARK),
    "UTF-16": ("a: b".encode("utf-16"), BYTE_ORDER_MARK),
}


def refusal(folder: Path) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        load_config(folder / "c.yaml", environ={})
    return tuple(line.removeprefix(f"{folder}/") for line in caught.value.mistakes)


@pytest.mark.parametrize("name", NO_DOCUMENTS)
def test_bytes_that_are_no_text_are_refused_with_a_sentence(name: str, tmp_path: Path) -> None:
    data, sentence = NO_DOCUMENTS[name]
    (tmp_path / "c.yaml").write_bytes(data)
    assert refusal(tmp_path) == (f"c.yaml: {sentence}",)


def test_a_missing_file_a_folder_and_a_device_are_refused_with_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    assert refusal(tmp_path) == ("c.yaml: cannot be read: no such file or directory",)
    path.mkdir()
    assert refusal(tmp_path) == ("c.yaml: is not a regular file",)
    path.rmdir()
    path.symlink_to("/dev/zero")
    assert refusal(tmp_path) == ("c.yaml: is not a regular file",)
