"""Document, variables, files and overrides: who wins, and what is remembered about it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from frazil.config import LoadedConfig, load_config
from frazil.config.models.postgres_source import PostgresSection
from frazil.config.showing import show_document
from frazil.errors import ConfigError

DOCUMENT = """\
pipeline: shop
catalog: {kind: rest, uri: "http://c"}
source: {kind: postgres, dsn: "postgresql://h/d"}
"""


def load(folder: Path, more: str = "", **environ: str) -> LoadedConfig:
    (folder / "c.yaml").write_text(DOCUMENT + more, encoding="utf-8")
    return load_config(folder / "c.yaml", environ=environ)


def mistakes(folder: Path, more: str = "", **environ: str) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        load(folder, more, **environ)
    return tuple(line.replace(f"{folder}/", "") for line in caught.value.mistakes)


def test_a_variable_can_stand_for_a_number_a_truth_a_duration_a_size_and_a_word(
    tmp_path: Path,
) -> None:
    config = load(
        tmp_path,
        "merge: {max_rows: ${N}, interval: ${D}}\ningest: {max_bytes: ${S}}\n"
        "storage: {s3: {path_style: ${T}}}\nmirror: {deletes: ${W}, format_version: ${V}}\n",
        N="7", D="5m", S="1GiB", T="true", W="soft", V="2",
    ).config  # fmt: skip
    assert config.merge.max_rows == 7
    assert config.merge.interval == timedelta(minutes=5)
    assert config.ingest.max_bytes == 2**30
    assert config.storage.s3.path_style is True
    assert config.mirror.deletes == "soft"
    assert config.mirror.format_version == 2


def test_a_variable_with_digits_can_be_a_text(tmp_path: Path) -> None:
    config = load(tmp_path, "spark: {master: ${M}}\n", M="1").config
    assert config.spark.master == "1"
    assert type(config.spark.master) is str


@pytest.mark.fault("G6")
@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("${A:-x}", "x"),
        ("${EMPTY:-x}", "x"),
        ("${SET:-x}", "set"),
        ("a${SET}b${SET}c", "asetbsetc"),
        ("'$$'", "$"),
        ("'$${SET}'", "${SET}"),
        ("'$SET and $'", "$SET and $"),
        ("'${A:-a b: c, d}'", "a b: c, d"),
        ("${A:-[x]}", "[x]"),
    ],
)
def test_references_are_filled(written: str, expected: str, tmp_path: Path) -> None:
    config = load(tmp_path, f"spark: {{master: {written}}}\n", SET="set", EMPTY="").config
    assert config.spark.master == expected


def test_an_empty_variable_alone_is_null(tmp_path: Path) -> None:
    document = 'telemetry: {token: ${A:-}, sentry: {dsn: "${B}"}}\n'
    config = load(tmp_path, document, B="").config
    assert config.telemetry.token is None
    assert config.telemetry.sentry.dsn is None


def test_a_reference_in_a_key_or_a_comment_is_left_alone(tmp_path: Path) -> None:
    config = load(tmp_path, "spark: {conf: {'${K}': v}} # ${NOT_SET}\n").config
    assert config.spark.conf == {"${K}": "v"}


def test_a_file_is_read_next_to_the_document_without_its_last_line_break(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("hunter2\n")
    loaded = load(tmp_path, "telemetry: {token: ${file:secret}}\n")
    token = loaded.config.telemetry.token
    assert token is not None
    assert token.get_secret_value() == "hunter2"
    assert loaded.origins["telemetry.token"] == f"file {tmp_path}/secret"


def test_a_file_of_another_kind_or_size_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(b"x" * 2**17)
    found = mistakes(tmp_path, "telemetry: {token: ${file:big}, release: ${file:/dev/zero}}\n")
    assert found == (
        "c.yaml:4: telemetry.token: the file big is larger than 64 KiB, which is the most a file "
        "may have here",
        "c.yaml:4: telemetry.release: the file /dev/zero is not a regular file",
    )


@pytest.mark.fault("G3")
def test_text_that_yaml_1_1_takes_for_booleans_stays_text(tmp_path: Path) -> None:
    conf = load(tmp_path, "spark: {conf: {a: off, b: on, c: yes, d: no, e: True, f: 010}}\n")
    assert conf.config.spark.conf == {
        "a": "off", "b": "on", "c": "yes", "d": "no", "e": "true", "f": "10",
    }  # fmt: skip


def test_an_override_wins_over_the_document(tmp_path: Path) -> None:
    loaded = load(
        tmp_path, "merge: {interval: 1m, max_rows: 5}\n", FRAZIL__MERGE__INTERVAL="2m",
    )  # fmt: skip
    assert loaded.config.merge.interval == timedelta(minutes=2)
    assert loaded.config.merge.max_rows == 5
    assert loaded.origins["merge.interval"] == "environment FRAZIL__MERGE__INTERVAL"


def test_an_override_of_false_and_of_zero_and_of_nothing_counts(tmp_path: Path) -> None:
    loaded = load(
        tmp_path,
        "storage: {s3: {path_style: true, endpoint: 'http://s'}}\n",
        FRAZIL__STORAGE__S3__PATH_STYLE="false",
        FRAZIL__STORAGE__S3__ENDPOINT="null",
    )
    assert loaded.config.storage.s3.path_style is False
    assert loaded.config.storage.s3.endpoint is None
    found = mistakes(tmp_path, "merge: {max_rows: 5}\n", FRAZIL__MERGE__MAX_ROWS="0")
    assert found == (
        "environment FRAZIL__MERGE__MAX_ROWS: merge.max_rows: must be a whole number of at least 1",
    )


def test_an_override_is_found_whatever_its_case_and_makes_missing_sections(
    tmp_path: Path,
) -> None:
    config = load(tmp_path, frazil__telemetry__Log__LEVEL="debug").config
    assert config.telemetry.log.level == "debug"


def test_an_override_may_be_a_section_or_list_and_a_single_key_beats_it(
    tmp_path: Path,
) -> None:
    config = load(
        tmp_path,
        "merge: {interval: 9m, concurrency: 3}\n",
        FRAZIL__MERGE="{interval: 2m, max_rows: 5}",
        FRAZIL__MERGE__MAX_ROWS="6",
        FRAZIL__TABLES="[{mirror: a.b, key: [id]}]",
    ).config
    assert (config.merge.max_rows, config.merge.concurrency) == (6, 1)
    assert config.merge.interval == timedelta(minutes=2)
    assert config.tables[0].mirror == "a.b"


def test_a_secret_override_is_taken_letter_by_letter(tmp_path: Path) -> None:
    token = "{*x: [#'\"${NOT_SET} off"
    loaded = load(tmp_path, FRAZIL__TELEMETRY__TOKEN=token)
    assert loaded.config.telemetry.token is not None
    assert loaded.config.telemetry.token.get_secret_value() == token


def test_an_override_in_a_free_mapping_keeps_its_name(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(DOCUMENT)
    environ = {"FRAZIL__SPARK__CONF__spark.sql.shuffle.partitions": "8"}
    loaded = load_config(tmp_path / "c.yaml", environ=environ)
    assert loaded.config.spark.conf == {"spark.sql.shuffle.partitions": "8"}


def test_an_override_of_a_source_key_works_for_its_kind_only(tmp_path: Path) -> None:
    config = load(tmp_path, FRAZIL__SOURCE__COPY__CONNECTIONS="9").config
    assert isinstance(config.source, PostgresSection)
    assert config.source.initial_copy.connections == 9
    assert mistakes(tmp_path, FRAZIL__SOURCE__BUCKET="b")[0].startswith(
        "environment FRAZIL__SOURCE__BUCKET: source.bucket: is not a known key"
    )


WRONG_OVERRIDES = {
    ("FRAZIL__MERGE__INTERVALL", "1m"): (
        "merge.intervall: is not a known key (did you mean interval?); known here: interval, "
        "max_rows, concurrency"
    ),
    ("FRAZIL__TABLES__0__MIRROR", "a.b"): "tables: is a list; give all of it as FRAZIL__TABLES",
    ("FRAZIL__PIPELINE__NAME", "a"): "pipeline.name: is not a known key: no key is allowed here",
    ("FRAZIL__MERGE", "{interval: 1m"): (
        "merge: is not valid YAML: expected ',' or '}', but got '<stream end>'"
    ),
    ("FRAZIL__MERGE", "{interval: hunter2}"): (
        "merge.interval: must be a duration such as 500ms, 10s, 1m, 168h or 7d, and more than "
        "nothing"
    ),
    ("FRAZIL__MIRROR__DELETES", "hunter2"): "mirror.deletes: must be one of apply, ignore, soft",
}


@pytest.mark.parametrize(("name", "value"), WRONG_OVERRIDES)
def test_a_wrong_override_is_reported_under_its_name_and_without_its_value(
    name: str, value: str, tmp_path: Path
) -> None:
    expected = WRONG_OVERRIDES[name, value]
    assert mistakes(tmp_path, **{name: value}) == (f"environment {name}: {expected}",)


def test_two_spellings_of_one_override_are_refused(tmp_path: Path) -> None:
    found = mistakes(tmp_path, FRAZIL__MERGE__INTERVAL="1m", frazil__merge__interval="2m")
    assert found == (
        "environment frazil__merge__interval: merge.interval: is also given by "
        "FRAZIL__MERGE__INTERVAL; keep one of the two",
    )


def test_every_value_knows_where_it_came_from(tmp_path: Path) -> None:
    loaded = load(
        tmp_path,
        "spark:\n  master: ${MASTER}\n  conf: {a: 'x${A}y${B:-b}'}\nmerge: {max_rows: ${N:-5}}\n",
        MASTER="local[2]", A="a", FRAZIL__RETRY__ATTEMPTS="2",
    )  # fmt: skip
    path = tmp_path / "c.yaml"
    assert loaded.origins["pipeline"] == f"{path}:1"
    assert loaded.origins["spark.master"] == f"${{MASTER}} at {path}:5"
    assert loaded.origins["spark.conf.a"] == f"${{A}} at {path}:6"
    assert loaded.origins["merge.max_rows"] == f"{path}:7"
    assert loaded.origins["merge.interval"] == "default"
    assert loaded.origins["source.slot"] == "default"
    assert loaded.origins["retry.attempts"] == "environment FRAZIL__RETRY__ATTEMPTS"
    assert [line.path for line in show_document(loaded)] == list(loaded.origins)


def test_the_path_comes_from_the_argument_then_the_variable_then_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("frazil", "variable", "argument"):
        Path(f"{name}.yaml").write_text(DOCUMENT.replace("shop", name))
    variable = {"CONFIG_FILE": "variable.yaml"}
    assert load_config(None, environ={}).config.pipeline == "frazil"
    assert load_config(None, environ=variable).config.pipeline == "variable"
    assert load_config(Path("argument.yaml"), environ=variable).config.pipeline == "argument"
    assert load_config(None, environ=variable).path == Path("variable.yaml")
