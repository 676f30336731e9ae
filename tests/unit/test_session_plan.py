from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from frazil.clients import jars
from frazil.clients.session_plan import plan_session
from frazil.config import load_config
from frazil.errors import ConfigError, RuntimeMissingError

if TYPE_CHECKING:
    from pathlib import Path

    from frazil.clients.session_plan import SessionPlan

MERGE = """
tables:
  - {mirror: public.users, changelog: public.users_changelog, key: [id]}
"""
SQLITE = "catalog: {kind: sql, uri: 'sqlite:///c.db', warehouse: 'file:///data/lake'}"


def planned(folder: Path, catalog: str, extra: str = "") -> SessionPlan:
    document = folder / "frazil.yaml"
    document.write_text(f"pipeline: shop\n{catalog}\n{extra}\n{MERGE}")
    return plan_session(load_config(document, environ={}).config)


def catalog_conf(plan: SessionPlan) -> dict[str, str]:
    prefix = f"{plan.catalog_key}."
    return {
        key.removeprefix(prefix): value
        for key, value in plan.catalog_conf.items()
        if key.startswith(prefix)
    }


def test_a_sqlite_catalog_brings_its_driver_and_nothing_of_aws(tmp_path: Path) -> None:
    plan = planned(tmp_path, SQLITE)
    assert plan.jars == (jars.ICEBERG_RUNTIME, jars.SQLITE_DRIVER)
    assert catalog_conf(plan) == {
        "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        "jdbc.schema-version": "V1",
        "uri": f"jdbc:sqlite:{tmp_path}/c.db?busy_timeout=30000",
        "warehouse": "file:///data/lake",
    }


def test_a_postgres_catalog_keeps_the_password_out_of_the_address(tmp_path: Path) -> None:
    uri = "postgresql://lake:p%40ss@db.example:5433/catalog?sslmode=verify-full"
    plan = planned(tmp_path, f"catalog: {{kind: sql, uri: '{uri}', warehouse: 's3://bucket/lake'}}")
    assert plan.jars == (jars.ICEBERG_RUNTIME, jars.POSTGRES_DRIVER, jars.AWS_BUNDLE)
    conf = catalog_conf(plan)
    assert conf["uri"] == "jdbc:postgresql://db.example:5433/catalog?sslmode=verify-full"
    assert (conf["jdbc.user"], conf["jdbc.password"]) == ("lake", "p@ss")
    assert conf["io-impl"] == "org.apache.iceberg.aws.s3.S3FileIO"


def test_a_rest_catalog_signs_in_with_client_credentials(tmp_path: Path) -> None:
    plan = planned(
        tmp_path,
        "catalog: {kind: rest, uri: 'https://catalog.example', warehouse: wh, "
        "credential: 'id:secret', scope: all, oauth2_server_uri: 'https://auth.example/tokens'}",
    )
    conf = catalog_conf(plan)
    assert conf["rest.auth.type"] == "oauth2"
    assert conf["credential"] == "id:secret"
    assert conf["oauth2-server-uri"] == "https://auth.example/tokens"
    assert conf["scope"] == "all"
    assert conf["header.X-Iceberg-Access-Delegation"] == "vended-credentials"
    assert "io-impl" not in conf


def test_keys_of_our_own_are_used_instead_of_vended_ones(tmp_path: Path) -> None:
    plan = planned(
        tmp_path,
        "catalog: {kind: rest, uri: 'http://127.0.0.1:8181', warehouse: 's3://b/wh'}",
        "storage: {s3: {endpoint: 'http://127.0.0.1:8333', access_key_id: k, "
        "secret_access_key: s, path_style: true, sse: kms, kms_key: arn}}",
    )
    conf = catalog_conf(plan)
    assert "header.X-Iceberg-Access-Delegation" not in conf
    assert conf["s3.endpoint"] == "http://127.0.0.1:8333"
    assert conf["s3.path-style-access"] == "true"
    assert (conf["s3.sse.type"], conf["s3.sse.key"]) == ("kms", "arn")
    assert conf["client.region"] == "us-east-1"


def test_sigv4_signs_for_the_service_that_was_named(tmp_path: Path) -> None:
    plan = planned(
        tmp_path,
        "catalog: {kind: rest, uri: 'https://glue.example/iceberg', warehouse: '1234', "
        "sigv4: {region: eu-west-1, service: glue}}",
    )
    conf = catalog_conf(plan)
    assert conf["rest.auth.type"] == "sigv4"
    assert (conf["rest.signing-name"], conf["rest.signing-region"]) == ("glue", "eu-west-1")


def test_glue_and_hive_are_understood(tmp_path: Path) -> None:
    glue = planned(tmp_path, "catalog: {kind: glue, region: eu-west-1, warehouse: 's3://b/wh'}")
    assert catalog_conf(glue)["type"] == "glue"
    assert jars.AWS_BUNDLE in glue.jars
    hive = planned(
        tmp_path, "catalog: {kind: hive, uri: 'thrift://hms:9083', warehouse: 'file:///wh'}"
    )
    assert catalog_conf(hive)["hive.lock-enabled"] == "false"


def test_an_aws_profile_reaches_every_process_that_talks_to_aws(tmp_path: Path) -> None:
    glue = "kind: glue, region: eu-west-1, warehouse: 's3://b/wh'"
    plan = planned(tmp_path, f"catalog: {{{glue}, profile: lake}}")
    assert plan.conf["spark.executorEnv.AWS_PROFILE"] == "lake"
    assert "spark.executorEnv.AWS_PROFILE" not in planned(tmp_path, f"catalog: {{{glue}}}").conf


def test_the_users_properties_and_spark_settings_win(tmp_path: Path) -> None:
    plan = planned(
        tmp_path,
        SQLITE.replace("}", ", name: ice, properties: {warehouse: 'file:///elsewhere', x: '1'}}"),
        "spark: {master: 'local[1]', conf: {spark.ui.enabled: 'true', spark.driver.memory: 3g, "
        "spark.sql.extensions: com.example.Extra}}",
    )
    assert plan.conf["spark.sql.catalog.ice.warehouse"] == "file:///elsewhere"
    assert plan.conf["spark.sql.catalog.ice.x"] == "1"
    assert plan.conf["spark.ui.enabled"] == "true"
    assert plan.conf["spark.driver.memory"] == "3g"
    assert plan.conf["spark.sql.extensions"].split(",") == [
        "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "com.example.Extra",
    ]


@pytest.mark.parametrize(
    ("warehouse", "bundle"),
    [("gs://bucket/wh", "iceberg-gcp-bundle"), ("abfss://c@a.dfs.net/wh", "iceberg-azure-bundle")],
)
def test_stores_we_bring_no_library_for_are_refused_with_what_to_add(
    tmp_path: Path, warehouse: str, bundle: str
) -> None:
    catalog = f"catalog: {{kind: sql, uri: 'sqlite:///c.db', warehouse: '{warehouse}'}}"
    with pytest.raises(RuntimeMissingError, match=bundle):
        planned(tmp_path, catalog)
    brought = f"spark: {{conf: {{spark.jars.packages: 'org.apache.iceberg:{bundle}:1.12.0'}}}}"
    assert planned(tmp_path, catalog, brought).jars == (jars.ICEBERG_RUNTIME, jars.SQLITE_DRIVER)


OWN_JARS = "spark: {conf: {spark.jars.packages: 'org.example:bundle:1'}}"


@pytest.mark.parametrize(
    ("sign_in", "expected"),
    [
        (
            "account: acc, key: k3y",
            {
                "adls.auth.shared-key.account.name": "acc",
                "adls.auth.shared-key.account.key": "k3y",
            },
        ),
        ("account: acc, sas: s4s", {"adls.sas-token.acc": "s4s"}),
    ],
)
def test_azure_is_signed_in_to_by_key_or_by_signature(
    tmp_path: Path, sign_in: str, expected: dict[str, str]
) -> None:
    catalog = SQLITE.replace("file:///data/lake", "abfss://c@acc.dfs.example/wh")
    plan = planned(tmp_path, catalog, f"storage: {{azure: {{{sign_in}}}}}\n{OWN_JARS}")
    conf = catalog_conf(plan)
    assert conf["io-impl"] == "org.apache.iceberg.azure.adlsv2.ADLSFileIO"
    assert {key: value for key, value in conf.items() if key.startswith("adls.")} == expected


def test_google_cloud_storage_has_its_own_file_io(tmp_path: Path) -> None:
    catalog = SQLITE.replace("file:///data/lake", "gs://bucket/wh")
    conf = catalog_conf(planned(tmp_path, catalog, OWN_JARS))
    assert conf["io-impl"] == "org.apache.iceberg.gcp.gcs.GCSFileIO"
    assert conf["warehouse"] == "gs://bucket/wh"


def test_credentials_that_would_be_ignored_are_refused(tmp_path: Path) -> None:
    catalog = SQLITE.replace("file:///data/lake", "gs://bucket/wh")
    storage = "storage: {gcs: {credentials: '{}'}}"
    with pytest.raises(ConfigError, match="GOOGLE_APPLICATION_CREDENTIALS"):
        planned(tmp_path, catalog, f"{storage}\n{OWN_JARS}")
    # Where Google is not used they do no harm.
    assert planned(tmp_path, SQLITE, storage).jars


def test_a_plan_shows_no_setting_when_printed(tmp_path: Path) -> None:
    storage = "storage: {s3: {access_key_id: k, secret_access_key: canary-9d1}}"
    plan = planned(tmp_path, SQLITE.replace("file:///data/lake", "s3://b/lake"), storage)
    assert "canary-9d1" in plan.conf.values()
    assert "canary-9d1" not in repr(plan)


@pytest.mark.parametrize(
    ("master", "is_local"),
    [("local[*]", True), ("local-cluster[2,1,1024]", True), ("spark://h:7077", False),
     ("k8s://https://h:6443", False), ("yarn", False)],
)  # fmt: skip
def test_only_masters_on_this_machine_count_as_local(
    tmp_path: Path, master: str, *, is_local: bool
) -> None:
    plan = planned(tmp_path, SQLITE, f"spark: {{master: '{master}'}}")
    assert plan.is_local is is_local
