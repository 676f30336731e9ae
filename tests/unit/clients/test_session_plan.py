from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from frazil.clients.spark import jars
from frazil.clients.spark.session_plan import plan_session
from frazil.config import load_config
from frazil.errors import ConfigError, RuntimeMissingError

if TYPE_CHECKING:
    from pathlib import Path

    from frazil.clients.spark.session_plan import SessionPlan

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
    assert conf["uri"].startswith("jdbc:postgresql://db.example:5433/catalog?sslmode=verify-full")
    assert (conf["jdbc.user"], conf["jdbc.password"]) == ("lake", "p@ss")
    assert conf["io-impl"] == "org.apache.iceberg.aws.s3.S3FileIO"


JAVAS_ROOTS = "sslfactory=org.postgresql.ssl.DefaultJavaSSLFactory"
VERIFIED = f"sslmode=verify-full&{JAVAS_ROOTS}"


@pytest.mark.fault("N47", "G14")
@pytest.mark.parametrize(
    ("uri", "query"),
    [
        ("postgresql://u:p@db.example/c", VERIFIED),
        ("postgresql://u:p@db.example/c?sslmode=prefer", VERIFIED),
        ("postgresql://u:p@db.example/c?sslmode=allow", VERIFIED),
        ("postgresql://u:p@db.example/c?sslmode=require", VERIFIED),
        ("postgresql://u:p@db.example/c?sslmode=verify-ca", VERIFIED),
        ("postgresql://u:p@db.example/c?sslmode=nonsense", VERIFIED),
        ("postgresql://u:p@db.example/c?ssl=true", VERIFIED),
        ("postgresql://u:p@db.example/c?sslmode=disable", "sslmode=disable"),
        (
            "postgresql://u:p@db.example/c?sslrootcert=/etc/ca.pem",
            "sslrootcert=/etc/ca.pem&sslmode=verify-full",
        ),
        ("postgresql://u:p@db.example/c?sslrootcert=system", VERIFIED),
        ("postgresql://u:p@127.0.0.1:5432/c", "sslmode=disable"),
        ("postgresql://u:p@[::1]:5432/c", "sslmode=disable"),
        ("postgresql://u:p@localhost/c?sslmode=prefer", "sslmode=disable"),
        ("postgresql://u:p@localhost/c?sslmode=require", VERIFIED),
        ("postgresql://u:p@localhost/c?ssl", VERIFIED),
        ("postgresql://u:p@localhost,db.example:5433/c", VERIFIED),
        ("postgresql://u:p@127.0.0.1.example/c", VERIFIED),
        ("postgresql://u:p@db.example/c?options=-c%20a%3Db", f"options=-c+a%3Db&{VERIFIED}"),
    ],
)
def test_a_postgres_catalog_is_spoken_to_by_the_rule_of_the_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uri: str, query: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    plan = planned(tmp_path, f"catalog: {{kind: sql, uri: '{uri}', warehouse: 'file:///wh'}}")
    assert catalog_conf(plan)["uri"].partition("?")[2] == query


@pytest.mark.fault("N47")
@pytest.mark.parametrize(
    ("properties", "query"),
    [
        ("uri: 'jdbc:postgresql://db.example/c'", VERIFIED),
        ("uri: 'jdbc:postgresql://db.example/c?sslmode=prefer'", VERIFIED),
        ("uri: 'jdbc:postgresql:c'", "sslmode=disable"),
        ("jdbc.sslmode: prefer", VERIFIED),
        ("jdbc.sslmode: disable", "sslmode=disable"),
        ("jdbc.sslrootcert: /ca.pem", "sslmode=verify-full"),
    ],
)
def test_properties_do_not_go_round_the_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, properties: str, query: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    catalog = (
        "catalog: {kind: sql, uri: 'postgresql://u:p@db.example/c', warehouse: 'file:///wh', "
        f"properties: {{{properties}}}}}"
    )
    assert catalog_conf(planned(tmp_path, catalog))["uri"].partition("?")[2] == query


def test_authorities_in_the_users_folder_are_the_drivers_to_find(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".postgresql").mkdir()
    (tmp_path / ".postgresql" / "root.crt").touch()
    uri = "postgresql://u:p@db.example/c"
    plan = planned(tmp_path, f"catalog: {{kind: sql, uri: '{uri}', warehouse: 'file:///wh'}}")
    assert catalog_conf(plan)["uri"].endswith("/c?sslmode=verify-full")


REST = "kind: rest, uri: 'http://catalog.example', warehouse: wh"


@pytest.mark.fault("N47")
@pytest.mark.parametrize(
    ("catalog", "location"),
    [
        (f"{REST}, token: t", "catalog.uri"),
        (f"{REST}, credential: 'i:s'", "catalog.uri"),
        (f"{REST}, properties: {{token: t}}", "catalog.uri"),
        (f"{REST}, properties: {{header.Authorization: t}}", "catalog.uri"),
        (f"{REST}, properties: {{rest.auth.basic.password: t}}", "catalog.uri"),
        (REST.replace("//", "//u:p@"), "catalog.uri"),
        (REST.replace("http:", "HTTP:"), "catalog.uri"),
        (REST.replace("catalog.example", "127.0.0.1.example") + ", token: t", "catalog.uri"),
        (REST.replace("http:", "https:") + ", token: t, properties: {uri: 'http://c'}", "uri"),
        (
            REST.replace("http:", "https:")
            + ", credential: 'i:s', oauth2_server_uri: 'http://tokens.example'",
            "catalog.oauth2_server_uri",
        ),
        (
            REST + ", properties: {s3.sse.type: custom, s3.sse.key: k, s3.endpoint: 'http://s3'}",
            "s3.endpoint",
        ),
    ],
)
def test_a_secret_is_not_sent_in_clear_text_unless_it_is_allowed(
    tmp_path: Path, catalog: str, location: str
) -> None:
    with pytest.raises(ConfigError, match="https://") as refused:
        planned(tmp_path, f"catalog: {{{catalog}}}")
    assert location in str(refused.value)
    if "HTTP:" not in catalog:
        assert planned(tmp_path, f"catalog: {{{catalog}, allow_insecure: true}}").conf


@pytest.mark.parametrize(
    "catalog",
    [
        REST,
        REST.replace("catalog.example", "127.0.0.1:8181") + ", token: t",
        REST.replace("catalog.example", "[::1]:8181") + ", token: t",
        REST.replace("catalog.example", "localhost") + ", credential: 'i:s'",
        REST.replace("http:", "https:") + ", token: t",
        # Signed, not sent.
        REST + ", sigv4: {region: eu-west-1}",
        REST + ", properties: {s3.endpoint: 'http://minio:9000'}",
    ],
)
def test_what_sends_no_secret_in_clear_text_is_accepted(tmp_path: Path, catalog: str) -> None:
    keys = "storage: {s3: {access_key_id: k, secret_access_key: s, endpoint: 'http://minio:9000'}}"
    assert planned(tmp_path, f"catalog: {{{catalog}}}", keys).conf


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


def hidden_by_spark(plan: SessionPlan, name: str, value: str = "x") -> bool:
    # As org.apache.spark.util.Utils.redact does it: found in the name, or in the value.
    pattern = re.compile(plan.conf["spark.redaction.regex"])
    return bool(pattern.search(name) or pattern.search(value))


CATALOG_KEY = "spark.sql.catalog.lake"


@pytest.mark.fault("N46", "G11")
@pytest.mark.parametrize(
    "name",
    [
        # Every part of the pattern has a name that no other part finds.
        "my.secret", "javax.jdo.option.ConnectionPassword", "ssl.passphrase", "passcode", "db.pwd",
        "my.token", "my.credential", "my.private", "x-signature", "Cookie", "Authorization",
        "fs.s3a.access.key", "aws-access-key-id", "accesskey", "apikey", "api-key", "shared-key",
        "fs.azure.account.key.x", "azure.sas", "sentry.dsn", "sse.key", "s3.sse.customer.key",
        # Whatever is a setting of Spark's or of a catalog and not on the list of harmless ones.
        f"{CATALOG_KEY}.header.Authorization", f"{CATALOG_KEY}.header.Cookie",
        f"{CATALOG_KEY}.header.X-Api-Key", f"{CATALOG_KEY}.header.X-Tenant",
        f"{CATALOG_KEY}.s3.sse.key", f"{CATALOG_KEY}.jdbc.user", f"{CATALOG_KEY}.something-new",
        "spark.executorEnv.FOO", "spark.driver.extraJavaOptions", "spark.plugin.license",
        "spark.hadoop.my.own", "my.own",
    ],
)  # fmt: skip
def test_spark_hides_what_is_not_known_to_be_harmless(tmp_path: Path, name: str) -> None:
    plan = planned(tmp_path, SQLITE, "spark: {conf: {spark.hadoop.my.own: x}}")
    assert hidden_by_spark(plan, name)


@pytest.mark.parametrize(
    "name",
    [
        CATALOG_KEY, f"{CATALOG_KEY}.type", f"{CATALOG_KEY}.uri", f"{CATALOG_KEY}.warehouse",
        f"{CATALOG_KEY}.io-impl", "spark.master", "spark.app.name", "spark.sql.extensions",
        "spark.executor.memory", "spark.sql.shuffle.partitions", "java.home", "fs.defaultFS",
    ],
)  # fmt: skip
def test_spark_shows_what_is_harmless_unless_it_holds_a_password(tmp_path: Path, name: str) -> None:
    plan = planned(tmp_path, SQLITE)
    assert not hidden_by_spark(plan, name)
    assert not hidden_by_spark(plan, name, "https://host:8181/path")
    assert hidden_by_spark(plan, name, "https://user:pass@host/path")


def test_the_users_pattern_of_secrets_is_added_to_ours(tmp_path: Path) -> None:
    extra = "spark: {conf: {spark.redaction.regex: '(?i:mine$)'}}"
    plan = planned(tmp_path, SQLITE, extra)
    assert hidden_by_spark(plan, "this.is.MINE")
    assert hidden_by_spark(plan, f"{CATALOG_KEY}.header.Cookie")
    assert not hidden_by_spark(plan, "java.home")


def test_encryption_is_one_line(tmp_path: Path) -> None:
    conf = planned(tmp_path, SQLITE, "spark: {encrypt: true}").conf
    for name in ("authenticate", "network.crypto.enabled", "io.encryption.enabled"):
        assert conf[f"spark.{name}"] == "true"
    assert "spark.authenticate" not in planned(tmp_path, SQLITE).conf
    standalone = "spark: {master: 'spark://h:7077', encrypt: true}"
    with pytest.raises(ConfigError, match=r"spark\.authenticate\.secret"):
        planned(tmp_path, SQLITE, standalone)
    with_secret = standalone.replace("true}", "true, conf: {spark.authenticate.secret: s3cr3t}}")
    assert hidden_by_spark(planned(tmp_path, SQLITE, with_secret), "spark.authenticate.secret")


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
