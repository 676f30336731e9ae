"""The document itself: examples, defaults, paths, per-table settings, schema, and public names."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from ruamel.yaml import YAML

import frazil.config
from frazil.config import Config, LoadedConfig, load_config, table_settings
from frazil.config.loader import Dialect
from frazil.config.models.buffer_source import BufferSection
from frazil.config.models.kafscale_source import KafscaleSection
from frazil.config.models.postgres_source import PostgresSection
from frazil.config.models.values import format_duration, format_size, parse_duration, parse_size
from frazil.config.showing import config_schema, native_document, show_document
from frazil.model.policy import OnUnrepresentable, Order

EXAMPLES = Path(__file__).parents[3] / "examples"
NATIVE = ("postgres", "kafscale", "buffer", "merge-only")
MINIMAL = """\
pipeline: shop
catalog: {kind: rest, uri: "http://c"}
source: {kind: postgres, dsn: "postgresql://h/d"}
"""


def load(folder: Path, document: str) -> LoadedConfig:
    folder.mkdir(exist_ok=True)
    (folder / "c.yaml").write_text(document, encoding="utf-8")
    return load_config(folder / "c.yaml", environ={})


@pytest.mark.parametrize("name", [*NATIVE, "merger", "processor"])
def test_an_example_loads_without_an_environment_and_without_a_warning(name: str) -> None:
    loaded = load_config(EXAMPLES / f"{name}.yaml", environ={})
    assert loaded.dialect is (Dialect.NATIVE if name in NATIVE else Dialect(name))
    assert loaded.warnings == ()


@pytest.mark.parametrize("name", [*NATIVE, "merger", "processor"])
def test_an_example_is_yaml_for_every_other_tool_too(name: str) -> None:
    assert YAML(typ="safe", pure=True).load((EXAMPLES / f"{name}.yaml").read_text())


def test_every_example_is_tested() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.yaml")} == {*NATIVE, "merger", "processor"}


@pytest.mark.parametrize("name", [*NATIVE, "merger", "processor"])
def test_the_shown_document_reads_back_as_the_same_configuration(name: str, tmp_path: Path) -> None:
    loaded = load_config(EXAMPLES / f"{name}.yaml", environ={})
    shown = native_document(loaded)
    source = shown["source"]
    if isinstance(source, dict) and "dsn" in source:
        source["dsn"] = "postgresql://h/d"
    again = load(tmp_path, json.dumps(shown))
    assert again.dialect is Dialect.NATIVE
    shown_again = {line.path: line.value for line in show_document(again)}
    assert shown_again == {line.path: line.value for line in show_document(loaded)}


def test_the_document_of_the_design_loads_with_its_references_unquoted(tmp_path: Path) -> None:
    document = MINIMAL + (
        "storage:\n  s3: {endpoint: null, region: us-east-1, access_key_id: ${K}, "
        "secret_access_key: ${S}, session_token: null, path_style: false, sse: null}\n"
        "tables:\n  - mirror: public.users\n"
        "    columns: {price: decimal(20,6), seen_at: {on_unrepresentable: string}}\n"
    )
    (tmp_path / "c.yaml").write_text(document)
    config = load_config(tmp_path / "c.yaml", environ={"K": "k", "S": "s"}).config
    assert config.storage.s3.access_key_id == "k"


def test_the_defaults_are_the_documented_ones(tmp_path: Path) -> None:
    loaded = load(tmp_path, MINIMAL)
    shown = {line.path: line.value for line in show_document(loaded)}
    expected = {
        "catalog.name": "lake",
        "storage.s3.region": "us-east-1",
        "source.tables": '["public.*"]',
        "source.slot": "shop_frazil",
        "source.publication.name": "shop_frazil",
        "source.publication.create": "true",
        "source.spool.dir": f"{tmp_path}/spool",
        "source.spool.max_bytes": "10GiB",
        "source.heartbeat": "1m",
        "source.on_slot_lost": "stop",
        "source.on_stopped_table.hold": "10GiB",
        "source.on_stopped_table.reread": "1GiB",
        "source.on_widen": "verify",
        "source.copy.connections": "4",
        "changelog.namespace": "{schema}",
        "changelog.table": "{table}_changelog",
        "changelog.column_prefix": "cdc_",
        "mirror.table": "{table}",
        "mirror.format_version": "3",
        "mirror.deletes": "apply",
        "mirror.on_drop": "keep",
        "mirror.evolution": "permissive",
        "mirror.on_unrepresentable": "fail",
        "mirror.write.target_file_size": "128MiB",
        "mirror.write.compression": "zstd",
        "mirror.write.row_group_rows": "131072",
        "mirror.index.young_entries": "65536",
        "mirror.index.max_runs": "8",
        "mirror.index.cache_dir": f"{tmp_path}/cache",
        "mirror.index.cache_bytes": "8GiB",
        "ingest.interval": "10s",
        "ingest.max_rows": "1000000",
        "ingest.max_bytes": "256MiB",
        "merge.interval": "1m",
        "merge.max_rows": "5000000",
        "merge.concurrency": "1",
        "dead_letters.namespace": "frazil",
        "dead_letters.table": "shop_dead_letters",
        "ledger.table": "shop_ledger",
        "retry.attempts": "5",
        "retry.base": "500ms",
        "retry.max": "30s",
        "shutdown_grace": "30s",
        "telemetry.listen": "127.0.0.1:9093",
        "telemetry.log.format": "auto",
        "telemetry.log.level": "info",
        "telemetry.log.values": "false",
        "spark.master": "local[*]",
    }
    assert {path: shown[path] for path in expected} == expected


def test_the_defaults_of_the_other_sources_are_the_documented_ones(tmp_path: Path) -> None:
    head = MINIMAL[: MINIMAL.index("source")]
    buffer = load(tmp_path, head + 'source: {kind: buffer, dsn: "postgresql://h/d"}\n').config
    assert isinstance(buffer.source, BufferSection)
    assert (buffer.source.schema_name, buffer.source.claim_rows) == ("philotes", 500_000)
    assert (buffer.source.events, buffer.source.dead_letters.table) == (
        "cdc_events",
        "dead_letter_events",
    )
    assert buffer.source.dead_letters.enabled
    assert buffer.source.cleanup == timedelta(hours=1)
    assert (buffer.source.backpressure.enabled, buffer.source.backpressure.check) == (
        True,
        timedelta(seconds=1),
    )
    assert buffer.source.retention == timedelta(hours=168)
    assert (buffer.source.backpressure.high, buffer.source.backpressure.low) == (8_000, 5_000)
    document = head + "source: {kind: kafscale, bucket: b, etcd: {endpoints: ['http://e']}}\n"
    kafscale = load(tmp_path, document).config.source
    assert isinstance(kafscale, KafscaleSection)
    assert (kafscale.namespace, kafscale.offsets.key_prefix) == ("default", "processors")
    assert kafscale.registry.cache == timedelta(minutes=5)


def test_a_section_with_all_keys_commented_out_has_its_defaults(tmp_path: Path) -> None:
    config = load(tmp_path, MINIMAL + "telemetry:\nspark:\n  conf:\nmerge:\ntables: []\n").config
    assert config.merge.max_rows == 5_000_000
    assert config.spark.conf == {}


@pytest.mark.parametrize(
    ("uri", "resolved"),
    [
        ("sqlite:///catalog.db", "sqlite:///{here}/catalog.db"),
        ("sqlite:///../catalog.db", "sqlite:///{here}/../catalog.db"),
        ("sqlite:////data/catalog.db", "sqlite:////data/catalog.db"),
        ("postgresql://u@h/d", "postgresql://u@h/d"),
    ],
)
def test_a_relative_database_is_next_to_the_document(
    uri: str, resolved: str, tmp_path: Path
) -> None:
    document = MINIMAL.replace('kind: rest, uri: "http://c"', f"kind: sql, uri: '{uri}', "
                               "warehouse: ./l")  # fmt: skip
    loaded = load(tmp_path, document)
    assert loaded.config.catalog.uri == resolved.format(here=tmp_path)


@pytest.mark.parametrize(
    ("warehouse", "resolved"),
    [
        ("./lake", "file://{here}/lake"),
        ("./my lake", "file://{here}/my%20lake"),
        ("/data/lake", "file:///data/lake"),
        ("file:///data/lake", "file:///data/lake"),
        ("s3://b/p", "s3://b/p"),
        ("main", "main"),
    ],
)
def test_a_relative_warehouse_is_next_to_the_document(
    warehouse: str, resolved: str, tmp_path: Path
) -> None:
    document = MINIMAL.replace('uri: "http://c"', f"uri: 'http://c', warehouse: {warehouse}")
    assert load(tmp_path, document).config.catalog.warehouse == resolved.format(here=tmp_path)


def test_other_paths_are_next_to_the_document_too(tmp_path: Path) -> None:
    document = MINIMAL.replace("kind: postgres,", "kind: postgres, spool: {dir: ../s},") + (
        "mirror: {index: {cache_dir: /var/cache}}\ntables: [{mirror: a.b, index: {cache_dir: c}}]\n"
    )
    config = load(tmp_path / "etc", document).config
    assert isinstance(config.source, PostgresSection)
    assert config.source.spool.dir == f"{tmp_path}/etc/../s"
    assert config.mirror.index.cache_dir == Path("/var/cache")
    assert config.tables[0].index.cache_dir == tmp_path / "etc" / "c"


def test_a_spool_may_be_in_an_object_store(tmp_path: Path) -> None:
    document = MINIMAL.replace("kind: postgres,", "kind: postgres, spool: {dir: 's3://b/s'},")
    source = load(tmp_path, document).config.source
    assert isinstance(source, PostgresSection)
    assert source.spool.dir == "s3://b/s"


def test_a_table_overrides_only_what_it_names(tmp_path: Path) -> None:
    document = MINIMAL + (
        "changelog: {partition_by: [a]}\n"
        "mirror: {deletes: soft, sort_by: [id], write: {compression: gzip, row_group_rows: 7}}\n"
        "tables:\n"
        "  - mirror: a.b\n"
        "    deletes: ignore\n"
        "    sort_by: []\n"
        "    on_unrepresentable: null\n"
        "    changelog_partition_by: []\n"
        "    order: per_key\n"
        "    write: {row_group_rows: 9}\n"
        "    columns: {price: 'decimal( 20, 6 )', seen: {on_unrepresentable: null}}\n"
    )
    config = load(tmp_path, document).config
    own, other = table_settings(config, "a.b"), table_settings(config, "a.c")
    assert (own.mirror.deletes, own.mirror.sort_by) == ("ignore", ())
    assert (own.mirror.write.compression, own.mirror.write.row_group_rows) == ("gzip", 9)
    assert own.mirror.on_unrepresentable is OnUnrepresentable.NULL
    assert own.changelog_partition_by == ()
    assert own.columns["price"].type == "decimal(20,6)"
    assert own.columns["seen"].on_unrepresentable is OnUnrepresentable.NULL
    assert own.tombstones == timedelta(days=7)
    assert (other.mirror, other.order, other.tombstones) == (config.mirror, Order.APPEND, None)
    assert (other.sequence, other.operation) == ("cdc_sequence_number", "cdc_operation")
    assert other.changelog_partition_by == ("a",)


def test_tables_of_the_buffer_are_ordered_per_key_and_have_its_prefix(tmp_path: Path) -> None:
    document = MINIMAL.replace("kind: postgres", "kind: buffer")
    config = load(tmp_path, document + "tables: [{mirror: a.b, tombstones: 2d}]\n").config
    own = table_settings(config, "a.b")
    assert (own.order, own.tombstones) == (Order.PER_KEY, timedelta(days=2))
    assert (own.column_prefix, own.sequence) == ("_cdc_", "_cdc_sequence_number")
    assert (config.changelog.namespace, config.changelog.table) == ("cdc", "{schema}_{table}")
    given = load(
        tmp_path, document + "changelog: {column_prefix: cdc_, table: 'x_{table}'}\n"
    ).config
    assert table_settings(given, "a.b").column_prefix == "cdc_"
    assert (given.changelog.namespace, given.changelog.table) == ("cdc", "x_{table}")


def test_a_partitioning_that_is_not_given_is_the_sources(tmp_path: Path) -> None:
    def given(more: str) -> tuple[str, ...] | None:
        return table_settings(load(tmp_path, MINIMAL + more).config, "a.b").changelog_partition_by

    assert given("") is None
    assert given("changelog: {partition_by: []}\n") == ()
    assert given("tables: [{mirror: a.b, changelog_partition_by: []}]\n") == ()


@pytest.mark.fault("U1")
def test_topics_are_ordered_per_key(tmp_path: Path) -> None:
    topics = "{kind: kafscale, bucket: b, offsets: {backend: none}}"
    document = MINIMAL.replace('{kind: postgres, dsn: "postgresql://h/d"}', topics)
    assert table_settings(load(tmp_path, document).config, "a.b").order is Order.PER_KEY


def test_names_after_the_pipeline_are_resolved(tmp_path: Path) -> None:
    document = MINIMAL + "ledger: {namespace: '{pipeline}_own', table: entries}\n"
    config = load(tmp_path, document + "mirror: {namespace: '{pipeline}_{schema}'}\n").config
    assert (config.ledger.namespace, config.ledger.table) == ("shop_own", "entries")
    assert config.mirror.namespace == "shop_{schema}"


def test_a_configuration_does_not_change(tmp_path: Path) -> None:
    config = load(tmp_path, MINIMAL).config
    with pytest.raises(ValueError, match="frozen"):
        config.merge.max_rows = 1  # type: ignore[misc]


def test_models_can_be_built_without_a_document() -> None:
    config = Config.model_validate(
        {
            "pipeline": "shop",
            "catalog": {"kind": "rest", "uri": "http://c"},
            "source": {"kind": "postgres", "dsn": "host=h"},
            "merge": {"interval": timedelta(seconds=3)},
        }
    )
    assert isinstance(config.source, PostgresSection)
    assert config.source.slot == "shop_frazil"
    assert config.merge.interval == timedelta(seconds=3)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("500ms", timedelta(milliseconds=500)),
        ("10s", timedelta(seconds=10)),
        ("1m", timedelta(minutes=1)),
        ("168h", timedelta(days=7)),
        ("7d", timedelta(days=7)),
    ],
)
def test_durations_are_read_and_written(text: str, value: timedelta) -> None:
    assert parse_duration(text) == value
    assert parse_duration(format_duration(value)) == value


@pytest.mark.parametrize(
    "text", ["", "10", "10 s", "1.5h", "-1s", "1w", "PT1H", "1M", "9" * 15 + "d"]
)
def test_other_durations_are_not_read(text: str) -> None:
    with pytest.raises(ValueError, match="a duration such as"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [("10GiB", 10 * 2**30), ("128MiB", 2**27), ("256MB", 256_000_000), ("1 kB", 1000), ("7B", 7)],
)
def test_sizes_are_read_and_written(text: str, value: int) -> None:
    assert parse_size(text) == value
    assert parse_size(format_size(value)) == value


@pytest.mark.parametrize("text", ["", "10", "10Gb", "1.5GiB", "-1MB", "10 gigs", "9999999PiB"])
def test_other_sizes_are_not_read(text: str) -> None:
    with pytest.raises(ValueError, match="a size such as"):
        parse_size(text)


def settings_in(schema: dict[str, object]) -> dict[str, dict[str, object]]:
    definitions = schema["$defs"]
    assert isinstance(definitions, dict)
    sections = {"Config": schema, **definitions}
    return {
        f"{name}.{key}": value
        for name, section in sections.items()
        for key, value in section.get("properties", {}).items()
    }


def test_the_schema_describes_every_key_and_refuses_others() -> None:
    schema = config_schema()
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["required"] == ["pipeline", "catalog"]
    settings = settings_in(schema)
    assert len(settings) > 120
    definitions = schema["$defs"]
    assert isinstance(definitions, dict)
    for path, value in settings.items():
        # A description equal to that of the section is said once, in the section.
        section = definitions.get(str(value.get("$ref", "")).rpartition("/")[2], {})
        assert value.get("description") or section.get("description"), path
    objects = [value for value in definitions.values() if value.get("type") == "object"]
    assert all(value["additionalProperties"] is False for value in objects)


def test_the_schema_has_strings_for_secrets_durations_and_sizes() -> None:
    keys = settings_in(config_schema())
    assert keys["PostgresSection.dsn"]["type"] == "string"
    assert keys["PostgresSection.heartbeat"]["pattern"] == "^[0-9]+(ms|s|m|h|d)$"
    assert keys["PostgresSection.heartbeat"]["default"] == "1m"
    size = keys["Spool.max_bytes"]["anyOf"]
    assert isinstance(size, list)
    assert [part["type"] for part in size] == ["string", "integer"]
    assert keys["Spool.max_bytes"]["default"] == "10GiB"
    assert "writeOnly" not in json.dumps(config_schema())
    assert {"PostgresSection.copy", "BufferSection.schema"} <= keys.keys()


def answer_of(code: str) -> str:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_the_public_names_are_complete_sorted_and_light() -> None:
    assert len(frazil.config.__all__) == len(set(frazil.config.__all__))
    assert all(hasattr(frazil.config, name) for name in frazil.config.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        getattr(frazil.config, "nothing")  # noqa: B009 - mypy knows that it is not there
    code = "import sys, frazil.config; print({'pydantic', 'ruamel.yaml'} & sys.modules.keys())"
    answer = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    )
    assert answer.stdout.strip() == "set()"


def test_the_models_are_light_without_the_parser() -> None:
    code = "import sys; from frazil.config import Config; print('ruamel.yaml' in sys.modules)"
    answer = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    )
    assert answer.stdout.strip() == "False"
