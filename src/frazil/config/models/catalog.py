"""The Iceberg catalog and the object stores of its tables."""

import re
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

from pydantic import AfterValidator, Field, ValidationInfo

from frazil.config.models.section import Broken, Section, defaults
from frazil.config.models.values import (
    FreeMapping,
    Name,
    Secret,
    Truth,
    Uri,
    WebAddress,
    document_directory,
    has_password,
    is_clear_text,
    matching,
    one_of,
    refuse,
)
from frazil.model.policy import CatalogKind

_SQLITE = "sqlite:///"
_OBJECT_STORES = ("s3://", "s3a://", "gs://", "abfss://", "abfs://", "hdfs://")
_WAREHOUSE_WORDS = "file:///…, s3://…, gs://…, abfss://… or a path that starts with / or ./"


class Encryption(StrEnum):
    """Server-side encryption of objects in S3."""

    S3 = "s3"
    KMS = "kms"


_URI_RULES = {
    CatalogKind.SQL: (
        re.compile(r"sqlite:///.+|postgresql://\S+"),
        "sqlite:///file.db (relative), sqlite:////file.db (absolute) or postgresql://… "
        "for kind sql",
    ),
    CatalogKind.REST: (
        re.compile(r"https?://[^\s/]\S*"),
        "http://… or https://… for kind rest",
    ),
    CatalogKind.HIVE: (
        re.compile(r"thrift://[^\s/]\S*"),
        "thrift://… for kind hive",
    ),
}
# What a REST catalog gets with every request, or when a token is requested.
_SENT_TO_CATALOG = re.compile(
    r"(?i)token|credential|header\.(?!X-Iceberg-Access-Delegation$).*|rest\.auth\.(?!type$).*"
)
CLEAR_TEXT = (
    "must be https://… because a secret is sent there "
    "(or set {}.allow_insecure: true to send it in clear text)"
)
KEYS_OF_KIND = {
    "token": CatalogKind.REST,
    "credential": CatalogKind.REST,
    "oauth2_server_uri": CatalogKind.REST,
    "scope": CatalogKind.REST,
    "sigv4": CatalogKind.REST,
    "region": CatalogKind.GLUE,
    "profile": CatalogKind.GLUE,
}


def _resolve_database(uri: str, info: ValidationInfo) -> str:
    """SQLAlchemy's rule: three slashes are relative (to the document), four are absolute."""
    directory = document_directory(info)
    if directory is None or not uri.startswith(_SQLITE) or uri.startswith(f"{_SQLITE}/"):
        return uri
    return f"{_SQLITE}{directory / uri.removeprefix(_SQLITE)}"


def _resolve_warehouse(warehouse: str, info: ValidationInfo) -> str:
    if "://" in warehouse:
        is_known = warehouse.startswith(("file:///", *_OBJECT_STORES))
        if not is_known:
            sentence = f"must be {_WAREHOUSE_WORDS}"
            raise refuse(sentence)
        return warehouse
    if not warehouse.startswith(("/", "./", "../")):
        return warehouse
    directory = document_directory(info) or Path()
    return f"file://{quote(str((directory / warehouse).absolute()))}"


class Sigv4(Section):
    """Requests to a REST catalog signed the AWS way."""

    region: Name
    """The AWS region requests are signed for."""
    # Iceberg's own default for rest.signing-name.
    service: Name = "execute-api"
    """The service name in the signature, e.g. glue or s3tables."""


class Catalog(Section):
    """Where tables are looked up and committed."""

    name: Annotated[
        Name, matching("[A-Za-z_][A-Za-z0-9_]*", "must be letters, digits and underscores")
    ] = "lake"
    """Tables are <name>.<namespace>.<table> in Spark SQL."""
    kind: Annotated[CatalogKind, one_of(CatalogKind)]
    """One of sql, rest, glue, hive."""
    uri: Annotated[Uri, AfterValidator(_resolve_database)] | None = Field(default=None, repr=False)
    """sql: sqlite:///file.db or postgresql://…; rest: http(s)://…; hive: thrift://…."""
    warehouse: Annotated[Uri, AfterValidator(_resolve_warehouse)] | None = Field(
        default=None, repr=False
    )
    """Root of table locations; for a REST catalog it may be a plain name or left out."""
    token: Secret | None = None
    """rest: bearer token."""
    credential: Secret | None = None
    """rest: OAuth2 client credentials, id:secret."""
    oauth2_server_uri: WebAddress | None = Field(default=None, repr=False)
    """rest: token endpoint, when it is not the catalog's own."""
    scope: Name | None = None
    """rest: OAuth2 scope."""
    sigv4: Sigv4 | None = None
    """rest: sign requests the AWS way."""
    region: Name | None = None
    """glue: AWS region."""
    profile: Name | None = None
    """glue: AWS profile."""
    allow_insecure: Truth = False
    """rest: send secrets to http:// addresses of other machines as well."""
    properties: FreeMapping = Field(
        default_factory=dict, description="Handed to Iceberg as they are.", repr=False
    )

    def broken_rules(self) -> Iterator[Broken]:
        """What each kind of catalog needs and does not know."""
        yield from self._address_rules()
        if self.token is not None and self.credential is not None:
            yield Broken(("credential",), "excludes catalog.token: give one of the two")
        for key, kind in KEYS_OF_KIND.items():
            if getattr(self, key) is not None and self.kind is not kind:
                yield Broken((key,), f"is for kind {kind}, and this catalog is {self.kind}")
        if self.kind is not CatalogKind.REST:
            yield from self._warehouse_rules()
        elif not self.allow_insecure:
            yield from self._clear_text_rules()

    def _clear_text_rules(self) -> Iterator[Broken]:
        """Without TLS, anyone on the network path can read what is sent."""
        signs_in = self.token is not None or self.credential is not None
        signs_in = signs_in or any(map(_SENT_TO_CATALOG.fullmatch, self.properties))
        for key, name in (("uri", "uri"), ("oauth2_server_uri", "oauth2-server-uri")):
            given = self.properties.get(name)
            address = getattr(self, key) if given is None else given
            if is_clear_text(address) and (signs_in or has_password(address)):
                yield Broken(
                    (key,) if given is None else ("properties", name), CLEAR_TEXT.format("catalog")
                )

    def _address_rules(self) -> Iterator[Broken]:
        rule = _URI_RULES.get(self.kind)
        if rule is None:
            if self.uri is not None:
                yield Broken(("uri",), f"is not used by kind {self.kind}: leave it out")
            return
        pattern, meaning = rule
        if self.uri is None:
            yield Broken(("uri",), f"is required: {meaning}")
        elif pattern.fullmatch(self.uri) is None or ":memory:" in self.uri:
            yield Broken(("uri",), f"must be {meaning}")

    def _warehouse_rules(self) -> Iterator[Broken]:
        if self.warehouse is None:
            yield Broken(("warehouse",), f"is required for kind {self.kind}: {_WAREHOUSE_WORDS}")
        elif "://" not in self.warehouse:
            yield Broken(("warehouse",), f"must be {_WAREHOUSE_WORDS}")


class S3(Section):
    """Amazon's object store, or one with the same protocol."""

    endpoint: WebAddress | None = Field(default=None, repr=False)
    """Address of another store than AWS."""
    # The default of S3 itself and of every compatible store.
    region: Name = "us-east-1"
    """Region of the buckets."""
    access_key_id: Name | None = None
    """Left out: the usual AWS chain of credentials."""
    secret_access_key: Secret | None = None
    """The secret that goes with access_key_id."""
    session_token: Secret | None = None
    """For temporary credentials."""
    path_style: Truth = False
    """Bucket in the path instead of the host name."""
    sse: Annotated[Encryption, one_of(Encryption)] | None = None
    """Server-side encryption of what is written: s3 or kms."""
    kms_key: Name | None = None
    """Key for sse: kms."""

    def broken_rules(self) -> Iterator[Broken]:
        """Keys come in pairs, and a KMS key needs KMS."""
        if self.access_key_id is None and self.secret_access_key is not None:
            yield Broken(
                ("access_key_id",), "is required with secret_access_key", (("secret_access_key",),)
            )
        if self.access_key_id is not None and self.secret_access_key is None:
            yield Broken(
                ("secret_access_key",), "is required with access_key_id", (("access_key_id",),)
            )
        if self.session_token is not None and self.access_key_id is None:
            yield Broken(
                ("session_token",),
                "needs access_key_id and secret_access_key",
                (("access_key_id",),),
            )
        if self.kms_key is not None and self.sse is not Encryption.KMS:
            yield Broken(("kms_key",), "needs sse: kms", (("sse",),))


class Gcs(Section):
    """Google's object store."""

    credentials: Secret | None = None
    """Service account key as JSON, e.g. ${file:key.json}; else the default."""


class Azure(Section):
    """Azure's object store."""

    account: Name | None = None
    """Storage account."""
    key: Secret | None = None
    """Account key."""
    sas: Secret | None = None
    """Shared access signature."""

    def broken_rules(self) -> Iterator[Broken]:
        """One way to sign in, and an account to sign in to."""
        if self.key is not None and self.sas is not None:
            yield Broken(("sas",), "excludes storage.azure.key: give one of the two")
        if self.account is None and (self.key is not None or self.sas is not None):
            yield Broken(("account",), "is required with key or sas")


class Storage(Section):
    """Object stores; only what is used."""

    s3: S3 = defaults("S3 and compatible stores.")
    gcs: Gcs = defaults("Google Cloud Storage.")
    azure: Azure = defaults("Azure Data Lake Storage.")
