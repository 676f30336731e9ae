"""Plants secrets everywhere, and searches all output of the process for them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import types
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin

import pytest
from pydantic import BaseModel, SecretStr

from frazil.cli.main import main
from frazil.config import Config

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.fault("G11", "N46")]

CANARY = "canary-5f3a"

COMMON = """
pipeline: aviary
storage:
  s3: {access_key_id: k, secret_access_key: canary-5f3a-s3, session_token: canary-5f3a-session}
  gcs: {credentials: canary-5f3a-gcs}
  azure: {account: a, %s}
telemetry:
  token: canary-5f3a-page
  sentry: {dsn: 'https://canary-5f3a-sentry@127.0.0.1:9/1'}
spark:
  master: 'local[1]'
  conf:
    spark.hadoop.fs.s3a.secret.key: canary-5f3a-hadoop
    spark.hadoop.my.own.setting: canary-5f3a-own
    spark.executorEnv.SOMETHING: canary-5f3a-executor
    spark.vendor.license: canary-5f3a-vendor
catalog:
  kind: rest
  uri: 'http://127.0.0.1:9'
  warehouse: wh
  %s
  properties:
    header.Authorization: Bearer canary-5f3a-header
    header.Cookie: session=canary-5f3a-cookie
    header.X-Api-Key: canary-5f3a-api
    header.X-Tenant: canary-5f3a-tenant
    s3.sse.key: canary-5f3a-sse
    something-new: canary-5f3a-new
"""
MERGE = "tables: [{mirror: a.b, changelog: a.c, key: [id]}]"
POSTGRES = "source: {kind: postgres, dsn: 'postgresql://u:canary-5f3a-dsn@127.0.0.1:9/db'}"
BUFFER = "source: {kind: buffer, dsn: 'host=127.0.0.1 port=9 password=canary-5f3a-buffer'}"
KAFSCALE = """source:
  kind: kafscale
  bucket: b
  etcd: {endpoints: ['http://127.0.0.1:9'], username: u, password: canary-5f3a-etcd}
  topics: [{topic: orders, table: prod.orders}]
"""
DOCUMENTS = {
    "merge": COMMON % ("key: canary-5f3a-azure", "token: canary-5f3a-token") + MERGE,
    "postgres": COMMON % ("sas: canary-5f3a-sas", "credential: 'id:canary-5f3a-client'") + POSTGRES,
    "buffer": COMMON % ("sas: canary-5f3a-sas", "token: canary-5f3a-token") + BUFFER,
    "kafscale": COMMON % ("sas: canary-5f3a-sas", "token: canary-5f3a-token") + KAFSCALE,
}
VARIABLES = {
    "AWS_SECRET_ACCESS_KEY": "canary-5f3a-aws",
    "AWS_SESSION_TOKEN": "canary-5f3a-aws-session",
    "ICEBERG_CATALOG_TOKEN": "canary-5f3a-catalog",
    "ICEBERG_S3_SECRET_ACCESS_KEY": "canary-5f3a-iceberg-s3",
    "PGPASSWORD": "canary-5f3a-pg",
    "SENTRY_DSN": "https://canary-5f3a-variable@127.0.0.1:9/1",
    "FRAZIL__STORAGE__S3__SECRET_ACCESS_KEY": "canary-5f3a-override",
}

# Does what a running pipeline does with its secrets, and fails in the ways it may fail.
PROGRAM = """
import json, os, sys, urllib.request, warnings
from pathlib import Path
import psutil
from frazil.cli.invocation import Invocation
from frazil.clients.spark.session import open_session
from frazil.errors import CatalogError
from frazil.telemetry.exception_hooks import install_hooks
from frazil.model.policy import LogFormat, LogLevel
from frazil.telemetry.logs import LogSettings, configure_logs, get_logger
from frazil.telemetry.metrics import Metrics

invocation = Invocation()
invocation.learn_environment()
loaded = invocation.load(Path(sys.argv[1]))
configure_logs(
    LogSettings(format=LogFormat(sys.argv[2]), level=LogLevel.DEBUG), invocation.redactor
)
log = get_logger("frazil.test")
install_hooks(log)
log.info("loaded", config=loaded.config, shown=repr(loaded), environ=dict(os.environ))
warnings.warn(f"about {os.environ['PGPASSWORD']}")
metrics = Metrics(f"p {os.environ['PGPASSWORD']}", release="1", redactor=invocation.redactor)
with open_session(loaded.config) as spark:
    secret = spark.conf.get("spark.sql.catalog.lake.s3.secret-access-key")
    assert secret == os.environ["FRAZIL__STORAGE__S3__SECRET_ACCESS_KEY"], "the override counts"
    spark._jvm.org.apache.logging.log4j.LogManager.getLogger("x").error(f"jvm says {secret}")
    alive = psutil.Process().children(recursive=True)
    family = [p for p in alive if p.status() != psutil.STATUS_ZOMBIE]
    arguments = [p.cmdline() for p in family]
    page = spark.sparkContext.uiWebUrl
    application = spark.sparkContext.applicationId
    shown = [
        urllib.request.urlopen(f"{page}{path}").read().decode()
        for path in ("/environment/", f"/api/v1/applications/{application}/environment")
    ]
    shown += [str(row) for row in spark.sql("SET").collect()]
    try:
        spark.sql("show namespaces in lake").collect()
    except Exception as error:
        log.exception("listing failed", error=error, table=f"a.{secret}")
    try:
        spark.range(1).selectExpr(f"raise_error('row {secret}')").collect()
    except Exception as error:
        log.exception("job failed", error=error)
        print(json.dumps({
            "arguments": arguments,
            "metrics": metrics.expose().body.decode(),
            "shown": shown,
        }))
        raise CatalogError(f"could not sign in with {secret}") from error
"""


def secret_fields(model: type[BaseModel], path: str = "") -> set[str]:
    """Every path in the document that holds a secret, found in the models themselves."""
    found = set()
    for name, field in model.model_fields.items():
        for kind in flattened(field.annotation):
            where = f"{path}{name}"
            if kind is SecretStr:
                found.add(where)
            elif isinstance(kind, type) and issubclass(kind, BaseModel):
                found |= secret_fields(kind, f"{where}.")
    return found


def flattened(annotation: Any) -> list[Any]:
    """The classes an annotation mentions, through unions, lists and Annotated."""
    if get_origin(annotation) in {Union, types.UnionType} or get_args(annotation):
        return [kind for part in get_args(annotation) for kind in flattened(part)]
    return [annotation]


PLANTED = {
    "storage.s3.secret_access_key", "storage.s3.session_token", "storage.gcs.credentials",
    "storage.azure.key", "storage.azure.sas", "telemetry.token", "telemetry.sentry.dsn",
    "catalog.token", "catalog.credential", "source.dsn", "source.etcd.password",
}  # fmt: skip


def test_a_canary_is_planted_in_every_secret_field_there_is() -> None:
    assert secret_fields(Config) == PLANTED
    everything = "".join(DOCUMENTS.values())
    for path in PLANTED:
        key = path.rpartition(".")[2]
        lines = [line for line in everything.splitlines() if f"{key}:" in line]
        assert any(CANARY in line for line in lines), path


@pytest.fixture
def config_show(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """The command in this process: its status and all that it wrote."""
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)

    def show(document: Path, *words: str, before: tuple[str, ...] = ()) -> tuple[int, str, str]:
        status = main((*before, "config", "show", "-c", str(document), *words))
        seen = capfd.readouterr()
        return status, seen.out, seen.err

    return show


def written(folder: Path, name: str) -> Path:
    document = folder / f"{name}.yaml"
    document.write_text(DOCUMENTS[name])
    return document


@pytest.mark.fault("G11")
@pytest.mark.parametrize("name", DOCUMENTS)
@pytest.mark.parametrize("output", ["table", "json"])
def test_config_show_sings_no_canary(
    tmp_path: Path, name: str, output: str, config_show: Callable[..., tuple[int, str, str]]
) -> None:
    status, out, err = config_show(written(tmp_path, name), "-o", output)
    assert status == 0, err
    assert "*****" in out
    assert CANARY not in out + err


def spoilt(text: str) -> list[str]:
    """The document with mistakes next to its secrets, instead of them, and in the syntax."""
    in_lists = text.replace(": canary", ": [canary").splitlines()
    return [
        text.replace("aviary", "Not A Name"),
        "\n".join(f"{line}]" if "[canary" in line else line for line in in_lists),
        f"{text}\nx: [",
        f"{text}\nunknown: canary-5f3a-unknown\n",
    ]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_mistakes_next_to_and_inside_secrets_sing_no_canary(
    tmp_path: Path, name: str, config_show: Callable[..., tuple[int, str, str]]
) -> None:
    document = tmp_path / "spoilt.yaml"
    for text in spoilt(DOCUMENTS[name]):
        document.write_text(text)
        status, out, err = config_show(document, before=("--debug",))
        assert status == 2
        assert err
        assert CANARY not in out + err


@pytest.mark.fault("G11")
def test_a_running_session_sings_no_canary(tmp_path: Path) -> None:
    document, events = written(tmp_path, "postgres"), tmp_path / "events"
    events.mkdir()
    insecure_options = f"""  encrypt: true
  conf:
    spark.ui.enabled: 'true'
    spark.eventLog.enabled: 'true'
    spark.eventLog.compress: 'false'
    spark.eventLog.dir: '{events.as_uri()}'
"""
    document.write_text(document.read_text().replace("  conf:\n", insecure_options))
    finished = subprocess.run(
        [sys.executable, "-c", PROGRAM, document, "json"],
        env={**os.environ, **VARIABLES},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert finished.returncode == 1
    for event in ("loaded", "jvm says", "listing failed", "job failed", "could not sign in with"):
        assert event in finished.stderr, finished.stderr
    assert "***" in finished.stderr
    assert CANARY not in finished.stderr
    report = json.loads(finished.stdout)
    assert "frazil_build_info" in report["metrics"]
    assert any("SparkSubmit" in each for arguments in report["arguments"] for each in arguments)
    assert CANARY not in finished.stdout
    everything_shown = "".join(report["shown"])
    for name in ("spark.vendor.license", "my.own.setting", "lake.header.Cookie"):
        assert name in everything_shown
    log = "".join(path.read_text() for path in events.rglob("*") if path.is_file())
    assert "SparkListenerEnvironmentUpdate" in log
    assert "spark.vendor.license" in log
    # The query that failed on purpose is shown by Spark as it was written.
    ours = [line for line in log.splitlines() if "USER_RAISED_EXCEPTION" not in line]
    assert CANARY not in "".join(ours)
