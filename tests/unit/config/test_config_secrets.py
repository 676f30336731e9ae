"""No secret leaves the configuration in any output."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from frazil.config import LoadedConfig, load_config
from frazil.config.loading.settings import ROOT, Shape, spot_below
from frazil.config.redaction import MASK, announces_secret, is_harmless, mask_uri, secret_values
from frazil.config.showing import native_document, show_document
from frazil.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from frazil.config.loading.settings import Spot

CANARY = "canary-7f3a"

CATALOG = {"kind": "rest", "uri": "https://c"}
SOURCES: dict[str, dict[str, object]] = {
    "postgres": {"kind": "postgres", "dsn": "postgresql://h/d"},
    "buffer": {"kind": "buffer", "dsn": "postgresql://h/d"},
    "kafscale": {
        "kind": "kafscale",
        "bucket": "b",
        "etcd": {"endpoints": ["https://e:2379"], "username": "u"},
    },
}
# What a secret needs in addition, and the shape some of them must have.
COMPANY: dict[str, object] = {
    "storage.s3.secret_access_key": {"s3": {"access_key_id": "id"}},
    "storage.s3.session_token": {"s3": {"access_key_id": "id", "secret_access_key": "s"}},
    "storage.azure.key": {"azure": {"account": "a"}},
    "storage.azure.sas": {"azure": {"account": "a"}},
}
SHAPES = {"source.dsn": f"postgresql://user:{CANARY}@h/d"}


def secret_paths(spot: Spot = ROOT, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key in spot.keys:
        below = spot_below(spot, key)
        assert below is not None
        if below.is_secret:
            yield (*path, key)
        elif below.shape is Shape.SECTION:
            yield from secret_paths(below, (*path, key))


SECRETS = [".".join(path) for path in secret_paths()]


def document_with(secret: str, value: object) -> dict[str, object]:
    kind = "kafscale" if ".etcd." in secret else "postgres"
    document: dict[str, object] = {
        "pipeline": "shop",
        "catalog": dict(CATALOG),
        "source": json.loads(json.dumps(SOURCES[kind])),
        "storage": json.loads(json.dumps(COMPANY.get(secret, {}))),
    }
    *parents, last = secret.split(".")
    node = document
    for key in parents:
        below = node.setdefault(key, {})
        assert isinstance(below, dict)
        node = below
    node[last] = value
    return document


def write(folder: Path, document: dict[str, object]) -> Path:
    path = folder / "c.yaml"
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def all_outputs(loaded: LoadedConfig) -> str:
    shown = show_document(loaded)
    return "\n".join(
        (
            repr(loaded), str(loaded), repr(loaded.config), str(loaded.config), repr(shown),
            json.dumps(native_document(loaded)), repr(dict(loaded.origins)), *loaded.warnings,
        )
    )  # fmt: skip


def test_the_secrets_of_the_document_are_the_ones_we_think_of() -> None:
    assert SECRETS == [
        "catalog.token",
        "catalog.credential",
        "storage.s3.secret_access_key",
        "storage.s3.session_token",
        "storage.gcs.credentials",
        "storage.azure.key",
        "storage.azure.sas",
        "source.dsn",
        "source.etcd.password",
        "telemetry.token",
        "telemetry.sentry.dsn",
    ]


@pytest.mark.parametrize("secret", SECRETS)
def test_a_secret_is_masked_in_every_output_and_known_to_telemetry(
    secret: str, tmp_path: Path
) -> None:
    value = SHAPES.get(secret, CANARY)
    loaded = load_config(write(tmp_path, document_with(secret, value)), environ={})
    assert CANARY not in all_outputs(loaded)
    assert {line.path: line.value for line in show_document(loaded)}[secret] == MASK
    assert CANARY in secret_values(loaded)
    assert value in secret_values(loaded)


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("wrong", [[CANARY], {CANARY: 1}, {"a": CANARY}], ids=str)
def test_a_secret_in_the_wrong_shape_is_not_repeated(
    secret: str, wrong: object, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(write(tmp_path, document_with(secret, wrong)), environ={})
    assert CANARY not in str(caught.value) + repr(caught.value) + repr(caught.value.__dict__)


@pytest.mark.parametrize("secret", SECRETS)
def test_a_secret_from_a_variable_or_an_override_is_not_repeated_by_other_mistakes(
    secret: str, tmp_path: Path
) -> None:
    document = document_with(secret, SHAPES.get(secret, "x").replace(CANARY, "${CANARY}"))
    document["merge"] = {"interval": "${CANARY}", "max_rows": "${CANARY}"}
    name = f"FRAZIL__{secret.replace('.', '__').upper()}"
    environ = {"CANARY": CANARY, name: CANARY, "FRAZIL__INGEST__MAX_ROWS": CANARY}
    with pytest.raises(ConfigError) as caught:
        load_config(write(tmp_path, document), environ=environ)
    assert CANARY not in str(caught.value)


URIS = {
    "catalog.uri": f"https://user:{CANARY}@c/api",
    "catalog.oauth2_server_uri": f"https://user:{CANARY}@c/token?client_secret={CANARY}",
    "storage.s3.endpoint": f"https://user:{CANARY}@s3",
    "telemetry.otlp.endpoint": f"https://c/?api_key={CANARY}",
    "source.registry.base_url": f"https://user:{CANARY}@r",
}


@pytest.mark.parametrize("path", URIS)
def test_a_password_inside_an_address_is_masked_and_the_rest_is_shown(
    path: str, tmp_path: Path
) -> None:
    document = document_with(path, URIS[path])
    if "registry" in path:
        source = {**SOURCES["kafscale"], "registry": {"base_url": URIS[path]}}
        document["source"] = source
    loaded = load_config(write(tmp_path, document), environ={})
    assert CANARY not in all_outputs(loaded)
    shown = {line.path: line.value for line in show_document(loaded)}[path]
    assert shown == URIS[path].replace(CANARY, MASK)
    assert CANARY in secret_values(loaded)


def test_a_list_of_addresses_is_masked_too(tmp_path: Path) -> None:
    document = document_with("source.etcd.password", "p")
    source = document["source"]
    assert isinstance(source, dict)
    source["etcd"] = {"endpoints": [f"https://user:{CANARY}@e:2379"]}
    loaded = load_config(write(tmp_path, document), environ={})
    assert CANARY not in all_outputs(loaded)
    assert CANARY in secret_values(loaded)


CATALOG_PROPERTIES = [
    "header.Authorization",
    "header.Cookie",
    "header.X-Api-Key",
    "X-Api-Key",
    "s3.sse.key",
    "s3.sse.md5",
    "jdbc.password",
    "s3.secret-access-key",
    "s3.access-key-id",
    "encryption.kms.key",
    "adls.sas-token.x",
    "header.X-Tenant",
    "rest.auth.basic.username",
    "io",
    "something-new",
]
SPARK_SETTINGS = [
    "spark.hadoop.fs.s3a.access.key",
    "spark.hadoop.any.thing",
    "spark.ssl.keyStorePassword",
    "spark.executorEnv.FOO",
    "spark.driver.extraJavaOptions",
    "spark.kubernetes.driverEnv.X",
    "spark.sql.catalog.other.header.Cookie",
    "spark.sql.catalog.other.something-new",
    "spark.authenticate.secret",
    "spark.mesos.principal",
    "spark.plugins.license",
    "spark.sql.vendor.license",
    "x",
]


@pytest.mark.fault("N46")
@pytest.mark.parametrize(
    ("section", "name"),
    [
        *(("catalog.properties", name) for name in CATALOG_PROPERTIES),
        *(("spark.conf", name) for name in SPARK_SETTINGS),
    ],
)
def test_a_property_is_masked_unless_it_is_known_to_be_harmless(
    section: str, name: str, tmp_path: Path
) -> None:
    document = document_with("catalog.token", "t")
    where, key = section.split(".")
    document[where] = {**(CATALOG if where == "catalog" else {}), key: {name: CANARY}}
    loaded = load_config(write(tmp_path, document), environ={})
    assert CANARY not in all_outputs(loaded)
    assert {line.path: line.value for line in show_document(loaded)}[f"{section}.{name}"] == MASK
    assert CANARY in secret_values(loaded)


@pytest.mark.parametrize(
    "name",
    [
        "s3.endpoint",
        "io-impl",
        "warehouse",
        "clients",
        "s3.path-style-access",
        "client.region",
        "cache-enabled",
        "rest.auth.type",
        "header.X-Iceberg-Access-Delegation",
        "spark.sql.shuffle.partitions",
        "spark.executor.cores",
        "spark.executor.memory",
        "spark.local.dir",
        "spark.authenticate",
        "spark.io.encryption.enabled",
        "spark.sql.catalog.other",
        "spark.sql.catalog.other.uri",
    ],
)
def test_names_that_are_harmless(name: str, tmp_path: Path) -> None:
    assert is_harmless(name)
    assert not announces_secret(name)
    document = document_with("catalog.token", "t")
    document["spark"] = {"conf": {name: "plain-value"}}
    loaded = load_config(write(tmp_path, document), environ={})
    assert {line.path: line.value for line in show_document(loaded)}[f"spark.conf.{name}"] == (
        "plain-value"
    )
    assert "plain-value" not in secret_values(loaded)


@pytest.mark.fault("N46")
def test_an_address_under_a_harmless_name_loses_its_password(tmp_path: Path) -> None:
    document = document_with("catalog.token", "t")
    addresses = {
        "spark.sql.catalog.x.uri": f"jdbc:postgresql://h/d?user=u&password={CANARY}",
        "spark.jars": f"https://u:{CANARY}@jars/x.jar",
    }
    document["spark"] = {"conf": addresses}
    loaded = load_config(write(tmp_path, document), environ={})
    assert CANARY not in all_outputs(loaded)
    assert CANARY in secret_values(loaded)


def test_everyday_values_of_unknown_properties_do_not_shred_the_log(tmp_path: Path) -> None:
    document = document_with("catalog.token", "t0ken")
    document["spark"] = {
        "conf": {
            "spark.x": "true",
            "spark.y": "1024m",
            "spark.z": "hunter2-hunter2",
            "spark.driver.extraJavaOptions": "-Dfile.encoding=ISO-8859-1",
            "spark.my.password": "1234",
        }
    }
    document["catalog"] = {**CATALOG, "properties": {"header.X-Tenant": "shop"}}
    loaded = load_config(write(tmp_path, document), environ={})
    assert secret_values(loaded) == {
        "postgresql://h/d",
        "hunter2-hunter2",
        "-Dfile.encoding=ISO-8859-1",
        "1234",
    }


@pytest.mark.fault("N46")
@pytest.mark.parametrize(
    ("value", "parts"),
    [
        ("Basic dXNlcjpwYXNz", {"dXNlcjpwYXNz"}),
        ("bearer abcdefgh.ijkl", {"abcdefgh.ijkl"}),
        ("session=0123456789; lang=en", {"0123456789"}),
    ],
)
def test_the_secret_part_of_a_header_is_known(value: str, parts: set[str], tmp_path: Path) -> None:
    document = document_with("catalog.token", "t")
    document["catalog"] = {**CATALOG, "properties": {"header.X": value}}
    assert {value, *parts} <= secret_values(load_config(write(tmp_path, document), environ={}))


def test_the_password_of_a_keyword_connection_string_is_known(tmp_path: Path) -> None:
    dsn = "host=h password='it''s' user=u".replace("''", "\\'")
    loaded = load_config(write(tmp_path, document_with("source.dsn", dsn)), environ={})
    assert {dsn, "it's"} <= secret_values(loaded)


def test_an_encoded_password_is_known_in_both_spellings(tmp_path: Path) -> None:
    dsn = "postgresql://u:p%40ss@h/d"
    loaded = load_config(write(tmp_path, document_with("source.dsn", dsn)), environ={})
    assert {"p%40ss", "p@ss"} <= secret_values(loaded)


def test_the_secret_half_of_client_credentials_is_known(tmp_path: Path) -> None:
    path = write(tmp_path, document_with("catalog.credential", "id:s3cr3t"))
    assert {"id:s3cr3t", "s3cr3t"} <= secret_values(load_config(path, environ={}))
    path = write(tmp_path, document_with("catalog.credential", "id:s3:cr3t"))
    assert {"id:s3:cr3t", "s3:cr3t"} <= secret_values(load_config(path, environ={}))


@pytest.mark.parametrize("password", ["pa:ss", "pa/ss", "p?a#ss", ":", "a@b:c"])
def test_a_password_with_odd_characters_is_hidden_and_known_completely(
    password: str, tmp_path: Path
) -> None:
    uri = f"postgresql://user:{password}@host:5432/d"
    assert mask_uri(uri) == f"postgresql://user:{MASK}@host:5432/d"
    loaded = load_config(write(tmp_path, document_with("source.dsn", uri)), environ={})
    assert password in secret_values(loaded)


def test_nothing_is_secret_in_a_document_without_secrets(tmp_path: Path) -> None:
    document = document_with("source.dsn", "postgresql://h/d")
    assert secret_values(load_config(write(tmp_path, document), environ={})) == {"postgresql://h/d"}


@pytest.mark.parametrize(
    "address",
    ["http://host:80/a@b", "https://host:8181/?mail=a@b", "abfss://box@account.net/x", "a@b"],
)
def test_a_port_is_no_password(address: str) -> None:
    assert mask_uri(address) == address


def test_masking_leaves_an_address_without_a_password_alone() -> None:
    assert mask_uri("postgresql://user@h/d?sslmode=require") == (
        "postgresql://user@h/d?sslmode=require"
    )
