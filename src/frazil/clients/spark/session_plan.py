"""From configuration to the settings and jars of a Spark session: a pure decision."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from frazil.clients.catalog_settings import (
    catalog_properties,
    needs_aws,
    needs_azure,
    needs_gcp,
)
from frazil.clients.spark import jars
from frazil.config.redaction import SPARK_SECRETS
from frazil.errors import ConfigError, RuntimeMissingError
from frazil.model.policy import CatalogKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from frazil.config import Config

_EXTENSIONS_KEY = "spark.sql.extensions"
_ICEBERG_EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"

REDACTION_KEY = "spark.redaction.regex"
_HADOOP = "spark.hadoop."
# What travels between Spark's processes, and what they spill to disk.
_ENCRYPTED = MappingProxyType(
    {
        "spark.authenticate": "true",
        "spark.network.crypto.enabled": "true",
        "spark.network.crypto.saslFallback": "false",
        "spark.io.encryption.enabled": "true",
    }
)


@dataclass(frozen=True, slots=True)
class SessionPlan:
    """What a session will be started with; settings may hold secrets and are not shown."""

    master: str
    catalog_key: str
    catalog_conf: Mapping[str, str] = field(repr=False)
    conf: Mapping[str, str] = field(repr=False)
    jars: tuple[tuple[jars.Jar, ...], ...] = field(repr=False)

    @property
    def is_local(self) -> bool:
        """Whether every process of the session runs on this machine."""
        return self.master.startswith("local")

    @property
    def worker_python(self) -> str | None:
        """The interpreter the user chose for Python tasks, if any."""
        return self.conf.get("spark.pyspark.python")


# Executors get it from Spark, the driver's JVM from its launcher.
PROFILE_KEY = "spark.executorEnv.AWS_PROFILE"


def plan_session(config: Config) -> SessionPlan:
    """Settings and jars for this configuration; the user's ``spark.conf`` wins."""
    catalog_key = f"spark.sql.catalog.{config.catalog.name}"
    catalog_conf = {catalog_key: "org.apache.iceberg.spark.SparkCatalog"}
    for key, value in catalog_properties(config.catalog, config.storage).items():
        catalog_conf[f"{catalog_key}.{key}"] = value
    ours = {
        "spark.master": config.spark.master,
        "spark.app.name": f"frazil {config.pipeline}",
        "spark.ui.enabled": "false",
        # The JVM is started as a shell would start it, and a shell draws bars into our logs.
        "spark.ui.showConsoleProgress": "false",
        # Timestamps mean the same on every machine.
        "spark.sql.session.timeZone": "UTC",
        **catalog_conf,
    }
    if config.spark.encrypt:
        ours |= _ENCRYPTED
    if config.catalog.profile is not None:
        # By the environment, which both the Java and the native client of tasks read.
        ours[PROFILE_KEY] = config.catalog.profile
    theirs = dict(config.spark.conf)
    extensions = [_ICEBERG_EXTENSIONS, *filter(None, [theirs.pop(_EXTENSIONS_KEY, None)])]
    conf = ours | theirs | {_EXTENSIONS_KEY: ",".join(extensions)}
    conf[REDACTION_KEY] = joined_patterns(theirs.get(REDACTION_KEY), _secret_names(conf))
    return SessionPlan(
        master=conf["spark.master"],
        catalog_key=catalog_key,
        catalog_conf=MappingProxyType(catalog_conf),
        conf=MappingProxyType(conf),
        jars=_needed_jars(config),
    )


def joined_patterns(*patterns: str | None) -> str:
    """One expression that finds whatever one of these finds."""
    return "|".join(f"(?:{pattern})" for pattern in patterns if pattern)


def _secret_names(conf: Mapping[str, str]) -> str:
    """What Spark hides in its page, its event log and its answers to SET: all but the harmless.

    Spark shows Hadoop's settings without their prefix, among a thousand of Hadoop's own, so that
    those are hidden by name.
    """
    hadoop = (key.removeprefix(_HADOOP) for key in conf if key.startswith(_HADOOP))
    return "|".join((SPARK_SECRETS, *(f"^{re.escape(key)}$" for key in hadoop)))


def _needed_jars(config: Config) -> tuple[tuple[jars.Jar, ...], ...]:
    needed = [jars.ICEBERG_RUNTIME]
    if config.catalog.kind is CatalogKind.SQL:
        uri = config.catalog.uri or ""
        is_sqlite = uri.startswith("sqlite:")
        needed.append(jars.SQLITE_DRIVER if is_sqlite else jars.POSTGRES_DRIVER)
    if needs_aws(config.catalog):
        needed.append(jars.AWS_BUNDLE)
    _require_own_jars(config)
    _refuse_unused_credentials(config)
    return tuple(needed)


def _refuse_unused_credentials(config: Config) -> None:
    """A key that would be ignored must not seem to be used."""
    if needs_gcp(config.catalog) and config.storage.gcs.credentials is not None:
        raise ConfigError(
            "storage.gcs.credentials: Iceberg takes Google's credentials from the environment.",
            next_step="put the key in a file and name it with GOOGLE_APPLICATION_CREDENTIALS",
        )


def _require_own_jars(config: Config) -> None:
    """Google's and Azure's libraries are the user's to bring: we have no way to test against them.

    Raises RuntimeMissingError naming the coordinates to add.
    """
    if needs_gcp(config.catalog):
        store, bundle = "Google Cloud Storage", "iceberg-gcp-bundle"
    elif needs_azure(config.catalog):
        store, bundle = "Azure", "iceberg-azure-bundle"
    else:
        return
    if config.spark.conf.keys() & {"spark.jars", "spark.jars.packages"}:
        return
    message = f"a warehouse on {store} needs Iceberg's library for it."
    coordinates = f"org.apache.iceberg:{bundle}:{jars.ICEBERG_VERSION}"
    raise RuntimeMissingError(
        message, next_step=f"add spark.conf: {{spark.jars.packages: {coordinates}}}"
    )
