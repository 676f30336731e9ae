"""Which properties of Iceberg and of Spark may be shown: every other one counts as a secret.

A list of names that announce a secret is never complete: ``header.Cookie`` and ``s3.sse.key`` were
missing from ours. The expressions are read by Python and, for Spark's own redaction, by Java.
"""

from __future__ import annotations

import re
from typing import Final

# Values of these may still be addresses: passwords inside of those are masked on their own.
_CATALOG: Final = (
    r"type|catalog-impl|io-impl|uri|warehouse|prefix|scope|oauth2-server-uri|client\.region"
    r"|clients|default-namespace|namespace-separator|file-io-impl"
    r"|cache-enabled|cache\.[a-z.-]+|io\.manifest\.cache[a-z.-]*|metrics-reporter-impl"
    r"|lock-impl|lock\.[a-z.-]+|hive\.[a-z.-]+|table-(?:default|override)\.[\w.-]+"
    r"|jdbc\.(?:schema-version|strict-mode|init-catalog-tables)"
    r"|rest\.auth\.type|rest\.sigv4-enabled|rest\.signing-(?:region|name)"
    r"|rest-metrics-reporting-enabled|rest-page-size|view-endpoints-supported"
    r"|snapshot-loading-mode|header\.X-Iceberg-Access-Delegation"
    r"|http-client\.(?:type|(?:apache|urlconnection)\.[a-z-]+)"
    r"|s3\.(?:endpoint|region|path-style-access|acl|sse\.type|staging-dir|multipart\.[a-z.-]+"
    r"|checksum-enabled|retry\.[a-z.-]+|delete[a-z.-]*|write\.[a-z.-]+|use-arn-region-enabled"
    r"|acceleration-enabled|dualstack-enabled|cross-region-access-enabled|preload-client-enabled"
    r"|remote-signing-enabled|analytics-accelerator\.[a-z.-]+|crt\.[a-z.-]+)"
    r"|glue\.(?:id|endpoint|skip-archive|skip-name-validation)|dynamodb\.(?:endpoint|table-name)"
    r"|gcs\.(?:project-id|service\.host|user-project|channel\.[a-z.-]+)"
    r"|adls\.(?:read|write)\.[a-z.-]+|adls\.auth\.shared-key\.account\.name"
)
_SPARK: Final = (
    r"spark\.(?:master|app\.name|submit\.deployMode|local\.dir|jars|jars\.packages|eventLog\.[\w.]+"
    r"|(?:driver|executor)\.(?:cores|memory|memoryOverhead(?:Factor)?|maxResultSize|instances"
    r"|host|port|bindAddress|heartbeatInterval|logs\.[\w.]+|resource\.[\w.]+)"
    r"|(?:dynamicAllocation|memory|shuffle|scheduler|speculation|task|locality|broadcast|default"
    r"|cleaner|rdd|storage|reducer|io|kryo|network|rpc|blockManager|serializer|python|pyspark"
    r"|files|excludeOnFailure|decommission|stage|port)(?:\.[\w.]+)?"
    r"|authenticate|network\.crypto\.enabled|io\.encryption\.enabled"
    r"|ssl(?:\.\w+)?\.(?:enabled|port|protocol|enabledAlgorithms|needClientAuth)"
    r"|ui\.(?:enabled|port|showConsoleProgress|prometheus\.enabled|retained\w+)"
    r"|redaction\.regex|sql\.redaction\.\w+(?:\.regex)?"
    r"|sql\.(?:adaptive|shuffle|files|session|ansi|parquet|orc|iceberg|execution|sources|optimizer|cbo"
    r"|join|legacy|codegen|inMemoryColumnarStorage|statistics|hive\.metastore|warehouse|debug)\.[\w.]+"
    r"|sql\.(?:autoBroadcastJoinThreshold|broadcastTimeout|extensions|caseSensitive|defaultCatalog"
    r"|timestampType|storeAssignmentPolicy|catalogImplementation|maxPlanStringLength))"
)
# Parts that make a name suspect, whatever family it belongs to.
TELLING_WORDS: Final = (
    r"secret|passw|passphrase|passcode|pwd|token|credential|private|signature|cookie|authorization"
    r"|access[._-]?key|api[._-]?key|shared-key|account[._-]key|sse[._-]?[a-z.]*key"
    r"|(?:^|[._-])(?:sas|dsn)(?:$|[._-])"
)
_TELLING: Final = re.compile(rf"{TELLING_WORDS}|(?:^|[._-])(?:key|auth)(?:$|[._-])", re.IGNORECASE)
# Shown although the name is suspect: the name of an account, or of a way to sign in.
_KNOWN: Final = re.compile(
    r"spark\.authenticate|.*\.auth\.type|(?:.*\.)?adls\.auth\.shared-key\.account\.name"
    r"|(?:.*\.)?header\.X-Iceberg-Access-Delegation"
)
_HARMLESS: Final = re.compile(rf"{_CATALOG}|{_SPARK}|spark\.sql\.catalog\.\w+(?:\.(?:{_CATALOG}))?")

# For Spark, which matches it against names and values: names of settings begin with `spark.`.
SPARK_SECRETS: Final = (
    rf"(?i:{TELLING_WORDS})|://[^/?#@\s]*:[^/?#\s]*@"
    rf"|^(?!(?:{_SPARK}|spark\.sql\.catalog\.\w+(?:\.(?:{_CATALOG}))?)$)spark\."
)


def announces_secret(name: str) -> bool:
    """Whether the name of a property says that its value is a secret."""
    return _TELLING.search(name) is not None and _KNOWN.fullmatch(name) is None


def is_harmless(name: str) -> bool:
    """Whether the value of a property of Iceberg's or Spark's may be shown."""
    return _HARMLESS.fullmatch(name) is not None and not announces_secret(name)
