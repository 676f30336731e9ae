"""The two foreign documents: read as they are, checked like ours, reported by their own keys."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from frazil.config import LoadedConfig, load_config
from frazil.config.loader import Dialect
from frazil.config.models.kafscale_source import (
    ColumnsFrom,
    KafscaleSection,
    LfsMode,
    OffsetsBackend,
    TopicColumnType,
    Validation,
)
from frazil.errors import ConfigError
from frazil.model.policy import Order

if TYPE_CHECKING:
    from pathlib import Path

MERGER = """\
project_ref: abcdefghijklmnopqrst
environment: production
iceberg:
  catalog_url: https://catalog.example.com/api/v1
  warehouse: main
  s3_endpoint: https://s3.example.com
  s3_region: eu-west-1
tables:
  - namespace: public
    changelog_table: users_changelog
    mirror_table: users
    primary_keys: [id]
merge_interval: "1h"
"""
PROCESSOR = """\
s3:
  bucket: kafscale-data
  namespace: production
iceberg:
  catalog: {type: rest, uri: "https://c", token: ""}
  warehouse: s3://w/production/
offsets: {backend: etcd, key_prefix: team-a}
etcd: {endpoints: ["etcd:2379"], username: "", password: null}
mappings:
  - topic: orders
    table: prod.orders
"""


def load(folder: Path, document: str, **environ: str) -> LoadedConfig:
    (folder / "c.yaml").write_text(document, encoding="utf-8")
    return load_config(folder / "c.yaml", environ=environ)


def mistakes(folder: Path, document: str, **environ: str) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        load(folder, document, **environ)
    return tuple(line.replace(f"{folder}/", "") for line in caught.value.mistakes)


def warnings(folder: Path, document: str, **environ: str) -> tuple[str, ...]:
    return tuple(
        line.replace(f"{folder}/", "") for line in load(folder, document, **environ).warnings
    )


def kafscale(loaded: LoadedConfig) -> KafscaleSection:
    assert isinstance(loaded.config.source, KafscaleSection)
    return loaded.config.source


def test_the_mergers_document_becomes_merges_by_key(tmp_path: Path) -> None:
    loaded = load(tmp_path, MERGER)
    config = loaded.config
    assert loaded.dialect is Dialect.MERGER
    assert loaded.warnings == ()
    assert config.pipeline == "abcdefghijklmnopqrst"
    assert config.source is None
    assert (config.catalog.kind, config.catalog.uri) == (
        "rest",
        "https://catalog.example.com/api/v1",
    )
    assert config.storage.s3.region == "eu-west-1"
    table = config.tables[0]
    assert (table.mirror, table.changelog) == ("public.users", "public.users_changelog")
    assert (table.key, table.order) == (("id",), Order.PER_KEY)
    assert (table.sequence, table.operation) == ("cdc_sequence_number", "cdc_operation")
    assert config.merge.interval == timedelta(hours=1)
    assert config.merge.max_rows == 10_000
    assert config.telemetry.sentry.environment == "production"
    assert loaded.origins["tables[0].mirror"] == f"{tmp_path}/c.yaml:11"
    assert loaded.origins["tables[0].order"] == "default"


def test_the_mergers_variables_fill_what_the_document_leaves_out(tmp_path: Path) -> None:
    loaded = load(
        tmp_path,
        MERGER,
        ICEBERG_CATALOG_TOKEN="t",
        ICEBERG_S3_ACCESS_KEY_ID="k",
        ICEBERG_S3_SECRET_ACCESS_KEY="s",
        SENTRY_DSN="https://key@sentry.example.com/1",
        APP_VERSION="1.2.3",
        ENABLE_TRACING="0",
        RUST_LOG="etl_iceberg_merger=debug,hyper=warn",
    )
    config = loaded.config
    assert config.catalog.token is not None
    assert config.catalog.token.get_secret_value() == "t"
    assert config.storage.s3.access_key_id == "k"
    assert config.storage.s3.secret_access_key is not None
    assert config.telemetry.sentry.dsn is not None
    assert config.telemetry.release == "1.2.3"
    assert config.telemetry.otlp.spans is False
    assert config.telemetry.log.level == "debug"
    assert loaded.origins["catalog.token"] == "environment ICEBERG_CATALOG_TOKEN"


def test_what_the_mergers_document_says_itself_wins_over_its_variables(tmp_path: Path) -> None:
    document = MERGER + 'sentry: {dsn: "${OTHER}"}\n'
    environ = {"OTHER": "https://a@b/1", "SENTRY_DSN": "https://c@d/2"}
    dsn = load(tmp_path, document, **environ).config.telemetry.sentry.dsn
    assert dsn is not None
    assert dsn.get_secret_value() == "https://a@b/1"


@pytest.mark.parametrize(
    ("directives", "level"),
    [
        ("info", "info"),
        ("trace", "debug"),
        ("warn,etl=trace", "warning"),
        ("off", "error"),
        ("a=error,b=info", "info"),
    ],
)
def test_rusts_log_levels_are_understood(directives: str, level: str, tmp_path: Path) -> None:
    assert load(tmp_path, MERGER, RUST_LOG=directives).config.telemetry.log.level == level


def test_log_directives_without_a_level_are_ignored_with_a_warning(tmp_path: Path) -> None:
    found = warnings(tmp_path, MERGER, RUST_LOG="etl_iceberg_merger")
    assert found == ("environment RUST_LOG: holds no level and is ignored",)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("merge_interval: 1h 30m", timedelta(minutes=90)),
        ("merge_interval: 2min", timedelta(minutes=2)),
        ("merge_interval: 90", timedelta(seconds=90)),
        ("merge_interval: 0.5", timedelta(milliseconds=500)),
        ("merge_interval: {secs: 3600, nanos: 500000000}", timedelta(hours=1, milliseconds=500)),
        ("merge_interval_secs: 60", timedelta(minutes=1)),
        ("merge_interval: ${I}", timedelta(seconds=7)),
    ],
)
def test_rusts_spellings_of_a_duration_are_understood(
    written: str, expected: timedelta, tmp_path: Path
) -> None:
    document = MERGER.replace('merge_interval: "1h"', written)
    assert load(tmp_path, document, I="7").config.merge.interval == expected


def test_a_project_that_is_no_legal_slot_name_is_renamed_with_a_warning(tmp_path: Path) -> None:
    document = MERGER.replace("abcdefghijklmnopqrst", "My-Project")
    assert load(tmp_path, document).config.pipeline == "my_project"
    assert warnings(tmp_path, document) == (
        "c.yaml:1: project_ref: the pipeline is called my_project, the nearest legal slot name",
    )


def test_long_project_names_stay_different(tmp_path: Path) -> None:
    names = {
        load(tmp_path, MERGER.replace("abcdefghijklmnopqrst", "a" * 70 + end)).config.pipeline
        for end in "bc"
    }
    assert len(names) == 2
    assert {len(name) for name in names} == {56}


INTERVAL = "must be a duration such as 1h or 1h 30m, or a number of seconds"
WRONG_MERGER = {
    "no project": (MERGER.replace("project_ref: abcdefghijklmnopqrst\n", ""), (
        "c.yaml:1: project_ref: is required: text that names the pipeline",)),
    "no catalog": (MERGER.replace("  catalog_url: https://catalog.example.com/api/v1\n", ""), (
        "c.yaml:3: iceberg.catalog_url: is required: address of the REST catalog",)),
    "no address": (MERGER.replace("https://catalog", "catalog"), (
        "c.yaml:4: iceberg.catalog_url: must be http://… or https://… for kind rest",)),
    "no tables": (MERGER[: MERGER.index("tables:")] + "tables: []\n", (
        "c.yaml:1: tables: is required: at least one table to merge",)),
    "no key": (MERGER.replace("[id]", "[]"), (
        "c.yaml:9: tables[0].primary_keys: is required: the key columns",)),
    "no namespace": (MERGER.replace("namespace: public\n    ", ""), (
        "c.yaml:9: tables[0].namespace: is required: a namespace",)),
    "no mirror": (MERGER.replace("    mirror_table: users\n", ""), (
        "c.yaml:9: tables[0].mirror_table: is required: name of the table",)),
    "no rows": (MERGER + "batch_size: 0\n", (
        "c.yaml:14: batch_size: must be a whole number of at least 1; found `0`",)),
    "no interval": (MERGER.replace('"1h"', "soon"), (f"c.yaml:13: merge_interval: {INTERVAL}",)),
    "no time": (MERGER.replace('"1h"', "0s"), (f"c.yaml:13: merge_interval: {INTERVAL}",)),
    "keys are a text": (MERGER.replace("[id]", "id"), (
        "c.yaml:12: tables[0].primary_keys: must be a list; found `id`",)),
    "unknown key": (MERGER + "batchsize: 5\n", (
        "c.yaml:14: batchsize: is not a known key (did you mean batch_size?); known here: "
        "project_ref, environment, iceberg, tables, merge_interval, merge_interval_secs, "
        "batch_size, sentry",)),
    "several": (MERGER.replace('"1h"', "soon").replace("[id]", "[]") + "batch_size: none\n", (
        "c.yaml:9: tables[0].primary_keys: is required: the key columns",
        f"c.yaml:13: merge_interval: {INTERVAL}",
        "c.yaml:14: batch_size: must be a whole number of at least 1; found `none`")),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG_MERGER)
def test_mistakes_in_the_mergers_document_have_its_lines_and_names(
    name: str, tmp_path: Path
) -> None:
    document, expected = WRONG_MERGER[name]
    assert mistakes(tmp_path, document) == expected


def test_unknown_keys_inside_the_mergers_sections_are_ignored_with_a_warning(
    tmp_path: Path,
) -> None:
    document = MERGER.replace("  warehouse: main\n", "  warehouse: main\n  s3_regoin: x\n")
    assert warnings(tmp_path, document) == (
        "c.yaml:6: iceberg.s3_regoin: is not a known key (did you mean s3_region?) and is ignored",
    )


def test_an_override_works_on_a_foreign_document_by_our_keys(tmp_path: Path) -> None:
    loaded = load(tmp_path, MERGER, FRAZIL__MERGE__MAX_ROWS="7")
    assert loaded.config.merge.max_rows == 7


@pytest.mark.fault("U24")
def test_the_processors_document_becomes_a_kafscale_source(tmp_path: Path) -> None:
    loaded = load(tmp_path, PROCESSOR)
    config, source = loaded.config, kafscale(loaded)
    assert loaded.dialect is Dialect.PROCESSOR
    assert loaded.warnings == ()
    assert config.pipeline == "team_a_production"
    assert config.catalog.warehouse == "s3://w/production"
    assert config.catalog.token is None
    assert (source.bucket, source.namespace) == ("kafscale-data", "production")
    assert source.offsets.key_prefix == "team-a"
    assert source.offsets.lease_ttl == timedelta(seconds=30)
    assert source.etcd.endpoints == ("http://etcd:2379",)
    assert source.validation is Validation.OFF
    assert config.ingest.interval == timedelta(seconds=5)
    topic = source.topics[0]
    assert (topic.create, topic.widen, topic.lfs.mode) == (False, False, LfsMode.OFF)
    assert source.columns_from(topic) is ColumnsFrom.NONE
    assert (config.telemetry.listen, config.telemetry.pages) == (":9093", False)


def test_zero_means_the_default_in_the_processors_document(tmp_path: Path) -> None:
    document = PROCESSOR.replace("key_prefix: team-a", "lease_ttl_seconds: 0") + (
        "processor: {poll_interval_seconds: 0}\n"
        "schema: {registry: {timeout_seconds: 0, cache_seconds: 60}}\n"
    )
    loaded = load(tmp_path, document)
    assert loaded.config.pipeline == "processors_production"
    assert loaded.config.ingest.interval == timedelta(seconds=5)
    assert kafscale(loaded).offsets.lease_ttl == timedelta(seconds=30)
    assert kafscale(loaded).registry.timeout == timedelta(seconds=5)
    assert kafscale(loaded).registry.cache == timedelta(seconds=60)


def test_the_processor_does_not_care_about_case_nor_do_we(tmp_path: Path) -> None:
    document = PROCESSOR.replace("type: rest", "type: REST") + (
        "    mode: Append\n"
        "    schema: {source: MAPPING, columns: [{name: id, type: LONG, required: true}]}\n"
        "discovery: {mode: S3}\n"
        "schema: {mode: Lenient, registry: {base_url: 'http://r'}}\n"
    )
    source = kafscale(load(tmp_path, document))
    assert source.discovery == "s3"
    assert source.validation is Validation.LENIENT
    assert source.topics[0].columns[0].type is TopicColumnType.LONG
    assert source.columns_from(source.topics[0]) is ColumnsFrom.MAPPING


@pytest.mark.parametrize("written", ["off", "Off", "false", '"off"'])
def test_off_is_off_even_after_helm_has_made_false_of_it(written: str, tmp_path: Path) -> None:
    document = PROCESSOR + f"    lfs: {{mode: {written}}}\nschema: {{mode: {written}}}\n"
    source = kafscale(load(tmp_path, document))
    assert source.topics[0].lfs.mode is LfsMode.OFF
    assert source.validation is Validation.OFF


def test_the_charts_own_keys_are_tolerated(tmp_path: Path) -> None:
    document = PROCESSOR + 'existingConfigMap: ""\npath: /config/config.yaml\n'
    assert warnings(tmp_path, document) == ()


def test_unknown_keys_of_the_processor_are_ignored_with_a_warning_and_a_line(
    tmp_path: Path,
) -> None:
    document = PROCESSOR + "    modus: append\nlogging: {level: debug}\n"
    assert warnings(tmp_path, document) == (
        "c.yaml:13: logging: is not a known key and is ignored",
        "c.yaml:12: mappings[0].modus: is not a known key (did you mean mode?) and is ignored",
    )


@pytest.mark.parametrize("written", ["mappings: []\n", "mappings:\n", ""])
def test_empty_mappings_are_accepted_with_a_warning(written: str, tmp_path: Path) -> None:
    document = PROCESSOR[: PROCESSOR.index("mappings:")] + written
    found = warnings(tmp_path, document)
    assert len(found) == 1
    assert found[0].endswith("mappings: is empty: no topic will be written anywhere")


def test_of_two_mappings_of_one_topic_the_later_wins_with_a_warning(tmp_path: Path) -> None:
    document = PROCESSOR + "  - topic: orders\n    table: prod.later\n"
    loaded = load(tmp_path, document)
    assert [topic.table for topic in kafscale(loaded).topics] == ["prod.later"]
    assert warnings(tmp_path, document) == (
        "c.yaml:10: mappings[0]: is ignored: a later mapping names the same topic",
    )


def test_a_worker_without_etcd_is_accepted(tmp_path: Path) -> None:
    document = PROCESSOR.replace("backend: etcd", "backend: none")
    assert kafscale(load(tmp_path, document)).offsets.backend is OffsetsBackend.NONE


def test_user_and_password_become_client_credentials(tmp_path: Path) -> None:
    document = PROCESSOR.replace('token: ""', "username: me, password: ${PW}")
    credential = load(tmp_path, document, PW="secret").config.catalog.credential
    assert credential is not None
    assert credential.get_secret_value() == "me:secret"


def test_a_token_wins_over_user_and_password_with_a_warning(tmp_path: Path) -> None:
    document = PROCESSOR.replace('token: ""', "token: t, username: me, password: hunter2")
    loaded = load(tmp_path, document)
    assert loaded.config.catalog.credential is None
    assert warnings(tmp_path, document) == (
        "c.yaml:5: iceberg.catalog.password: is ignored, because a token is given too",
    )


@pytest.mark.fault("U24")
def test_the_processors_variables_are_read(tmp_path: Path) -> None:
    document = PROCESSOR.replace("namespace: production", "region: eu-west-1")
    loaded = load(
        tmp_path,
        document,
        KAFSCALE_METRICS_ADDR="127.0.0.1:9100",
        KAFSCALE_ICEBERG_LFS_MODE="Hybrid",
        KAFSCALE_ICEBERG_LFS_MAX_INLINE_SIZE="1024",
        KAFSCALE_ICEBERG_LFS_VALIDATE_CHECKSUM="F",
        KAFSCALE_ICEBERG_LFS_RESOLVE_CONCURRENCY="many",
    )
    lfs = kafscale(loaded).topics[0].lfs
    assert (lfs.mode, lfs.max_inline_size, lfs.validate_checksum) == (LfsMode.HYBRID, 1024, False)
    assert lfs.resolve_concurrency == 4
    assert loaded.config.telemetry.listen == "127.0.0.1:9100"
    assert loaded.config.pipeline == "team_a"
    assert loaded.warnings == (
        "environment KAFSCALE_ICEBERG_LFS_RESOLVE_CONCURRENCY: does not parse and is ignored",
    )


WRONG_PROCESSOR = {
    "no bucket": (PROCESSOR.replace("  bucket: kafscale-data\n", ""), (
        "c.yaml:1: s3.bucket: is required: bucket of the segments",)),
    "another catalog": (PROCESSOR.replace("type: rest", "type: glue"), (
        "c.yaml:5: iceberg.catalog.type: must be rest: the processor knows no other catalog",)),
    "no address": (PROCESSOR.replace(', uri: "https://c"', ""), (
        "c.yaml:5: iceberg.catalog.uri: is required: address of the REST catalog",)),
    "another backend": (PROCESSOR.replace("backend: etcd", "backend: redis"), (
        "c.yaml:7: offsets.backend: must be one of etcd, none; found `redis`",)),
    "no endpoints": (PROCESSOR.replace('endpoints: ["etcd:2379"]', "endpoints: []"), (
        "c.yaml:8: etcd.endpoints: is required with offsets.backend: etcd",)),
    "another mode": (PROCESSOR + "    mode: upsert\n", (
        "c.yaml:12: mappings[0].mode: must be append: the processor knows no other mode",)),
    "no table": (PROCESSOR.replace("    table: prod.orders\n", ""), (
        "c.yaml:10: mappings[0].table: is required: namespace.table",)),
    "another type": (PROCESSOR + "    schema: {columns: [{name: a, type: integer}]}\n", (
        "c.yaml:12: mappings[0].schema.columns[0].type: must be one of boolean, int, long, float, "
        "double, string, binary, timestamp, date (did you mean int?); found `integer`",)),
    "no registry": (PROCESSOR + "schema: {mode: strict}\n", (
        "c.yaml:12: schema.registry.base_url: is required with mode strict",)),
    "negative time": (PROCESSOR + "processor: {poll_interval_seconds: -1}\n", (
        "c.yaml:12: processor.poll_interval_seconds: must be a whole number of seconds; 0 is the "
        "default",)),
    "hybrid without size": (PROCESSOR.replace("bucket:", "region: r\n  bucket:")
        + "    lfs: {mode: hybrid}\n", (
        "c.yaml:13: mappings[0].lfs.max_inline_size: must be more than 0 for mode hybrid",)),
    "lfs without region": (PROCESSOR + "    lfs: {mode: resolve}\n", (
        "c.yaml:1: s3.region: is required when a mapping resolves large payloads (lfs)",)),
    "mappings are a mapping": (PROCESSOR[: PROCESSOR.index("mappings:")] + "mappings: {a: b}\n", (
        "c.yaml:9: mappings: must be a list",)),
    "a section is a text": (PROCESSOR + "processor: fast\n", (
        "c.yaml:12: processor: must be a mapping",)),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG_PROCESSOR)
def test_mistakes_in_the_processors_document_have_its_lines_and_names(
    name: str, tmp_path: Path
) -> None:
    document, expected = WRONG_PROCESSOR[name]
    assert mistakes(tmp_path, document) == expected


def test_a_wrong_metrics_address_is_reported_under_its_variable(tmp_path: Path) -> None:
    assert mistakes(tmp_path, PROCESSOR, KAFSCALE_METRICS_ADDR="hunter2") == (
        "environment KAFSCALE_METRICS_ADDR: telemetry.listen: must be host:port, :port for every "
        "interface, or [::1]:port",
    )


def test_the_pages_of_the_processor_open_with_a_token(tmp_path: Path) -> None:
    found = mistakes(tmp_path, PROCESSOR, FRAZIL__TELEMETRY__PAGES="true")
    assert "telemetry.token: is required because listen is not a loopback address" in found[0]
    environ = {"FRAZIL__TELEMETRY__PAGES": "true", "FRAZIL__TELEMETRY__TOKEN": "t"}
    assert load(tmp_path, PROCESSOR, **environ).config.telemetry.pages is True
