"""Keep a small lake as this release writes it.

``python -m tests.support.lake.recorded RELEASE FOLDER`` writes ``lake-RELEASE.tar.gz``, the objects
below ``s3://recorded-lake/RELEASE/``, and ``lake-RELEASE.json``, what is in them. Later releases
read both in ``tests/spark/lake/test_recorded_lake.py``.
"""

from __future__ import annotations

import gzip
import io
import json
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pyarrow import fs

from frazil.clients.spark.session import open_session
from frazil.codec.key_index.head import read_head
from frazil.config import load_config
from frazil.demo.services import embedded_postgres, seaweedfs
from tests.support.ingest.captured import captured_database

if TYPE_CHECKING:
    from frazil.demo.services import ObjectStore
    from tests.support.ingest.captured import CapturedDatabase

BUCKET = "recorded-lake"
NAMES = ("catalog", "source", "spark")
MERGED = ("items", "people", "orders", "counters", "emptied", "copied_again", "evolved")
# Runs are sealed after few rows, so that the index has all its parts.
SECTIONS: dict[str, Any] = {
    "pipeline": "recorded",
    "mirror": {"index": {"young_entries": 6, "max_runs": 3}},
    "tables": [
        {"mirror": "public.items", "partition_by": ["region"]},
        {"mirror": "public.people", "deletes": "soft"},
        {"mirror": "public.orders", "format_version": 2},
        {"mirror": "public.counters", "order": "per_key", "tombstones": "7d"},
    ],
}


def fill(db: CapturedDatabase) -> None:
    """Copy, stream and merge in several rounds; then stop some tables, each for its own reason."""
    db.run(
        "create table items (code text primary key, region text, quantity int)",
        "insert into items select 'item ' || i, (array['north', 'south'])[i % 2 + 1], i "
        "from generate_series(1, 12) i",
        "create table people (id int primary key, name text)",
        "insert into people select i, 'person ' || i from generate_series(1, 8) i",
        "create table orders (id bigint, line int, price numeric(10, 2), at timestamptz, "
        "primary key (id, line))",
        "insert into orders select i, i % 2, i * 1.25, "
        "'2026-01-01Z'::timestamptz + i * '1h'::interval from generate_series(1, 8) i",
        *(
            statement
            for table in ("counters", "emptied", "copied_again", "evolved", "widened", "dropped")
            for statement in (
                f"create table {table} (id int primary key, n int)",
                f"insert into {table} select i, i from generate_series(1, 8) i",
            )
        ),
        "create table recreated (id int primary key, n int)",
        "insert into recreated values (1, 1)",
        "create table excluded (id int primary key, n int)",
        "insert into excluded values (1, 1)",
        "create table keyless (n int)",
        "insert into keyless values (1), (2)",
        "create unlogged table unlogged (id int primary key)",
    )
    db.catch_up()
    for number in (1, 2, 3):
        change(db, number)
        db.ingest()
        db.merge(*MERGED)
    stop_tables(db)
    db.ingest()


def change(db: CapturedDatabase, number: int) -> None:
    """One round of changes: keys of earlier rounds and new ones."""
    new = 100 * number
    db.in_transaction(
        f"insert into items select 'new ' || i, 'east', i from generate_series({new}, {new + 4}) i",
        f"update items set quantity = quantity + 1000 where code = 'item {number}'",
        f"update items set region = 'west' where code = 'item {number + 3}'",
        f"update items set code = 'renamed {number}' where code = 'item {number + 6}'",
        f"delete from items where code = 'item {number + 9}'",
        f"insert into people values ({new}, 'late')",
        f"update people set name = 'renamed {number}' where id = {number}",
        f"delete from people where id = {number + 4}",
        f"insert into orders values ({new}, 1, 0.5, '2026-02-0{number}Z')",
        f"update orders set price = price + 100 where id = {number}",
        f"delete from orders where id = {number + 4}",
        f"update counters set n = n + 1000 where id = {number}",
        f"delete from counters where id = {number + 4}",
        "insert into keyless values (3)",
    )
    if number == 1:
        db.run(
            "truncate emptied",
            "insert into emptied values (1, 100), (9, 900)",
            "alter table evolved add column added text default 'given'",
            "insert into evolved values (9, 9, 'new')",
        )
        db.resync("copied_again")
        db.run("update copied_again set n = n * 10")
    if number == 2:
        db.run(
            "update emptied set n = 0 where id = 9",
            "alter table evolved rename added to label",
            "alter table evolved drop column n",
            "update evolved set label = 'changed' where id = 1",
            "delete from copied_again where id < 4",
        )


def stop_tables(db: CapturedDatabase) -> None:
    """Tables that are paused, gone, removed, or have to be copied again."""
    db.run(
        "alter table widened alter n type bigint",
        "insert into widened values (9, 9)",
        "drop table dropped",
        "drop table recreated",
        "create table recreated (id int primary key, n int)",
        "insert into recreated values (2, 2)",
    )
    db.reconfigure(source={"exclude": ["public.excluded"], "on_widen": "stop"})


def describe(db: CapturedDatabase, files: fs.S3FileSystem) -> dict[str, Any]:
    """What the lake holds, for the tests of later releases."""
    catalog, named = db.config.catalog.name, db.ledger().table.name
    ledger = ".".join((*named.namespace, named.table))
    tables: dict[str, Any] = {}
    for namespace in db.spark.sql(f"show namespaces in {catalog}").collect():
        for row in db.spark.sql(f"show tables in {catalog}.`{namespace[0]}`").collect():
            name = f"{row.namespace}.{row.tableName}"
            tables[name] = described_table(db, name, files)
    states = db.spark.sql(
        "select table_name, state, state_position, state_reason, source_identity "
        f"from {catalog}.{ledger} where kind <> 'batch' order by commit_number"
    ).collect()
    batches = db.spark.sql(f"select * from {catalog}.{ledger} where kind = 'batch'").count()
    sections = {name: each for name, each in db.document.items() if name not in NAMES}
    sections["mirror"]["index"].pop("cache_dir", None)
    return {
        "document": {**sections, "storage": {}},
        "ledger": ledger,
        "ledger batch rows": batches,
        "ledger states": {row.table_name: row.asDict() for row in states},
        "tables": dict(sorted(tables.items())),
    }


def described_table(db: CapturedDatabase, name: str, files: fs.S3FileSystem) -> dict[str, Any]:
    """The newest metadata of a table, its properties, rows and key index."""
    spark, catalog = db.spark, db.config.catalog.name
    full = f"{catalog}.{name}"
    spark.sql(f"refresh table {full}")
    versions = spark.sql(f"select file from {full}.metadata_log_entries order by timestamp")
    summaries = [
        row.summary
        for row in spark.sql(
            f"select summary from {full}.snapshots order by committed_at"
        ).collect()
    ]
    metadata = versions.collect()[-1].file
    stored = json.loads(read(files, metadata))
    found: dict[str, Any] = {
        "metadata": metadata,
        "properties": {
            key: value for key, value in stored["properties"].items() if key.startswith("frazil.")
        },
        "snapshots": len(summaries),
        "restarts": [each["frazil.restart"] for each in summaries if "frazil.restart" in each],
    }
    if "frazil.merge" in found["properties"]:
        rows = spark.sql(f"select to_json(struct(*)) from {full}").collect()
        found["rows"] = sorted(row[0] for row in rows)
    if head := (summaries or [{}])[-1].get("frazil.index"):
        manifest, _ = read_head(read(files, head))
        found["index"] = {
            "runs": len(manifest.runs),
            "young entries": manifest.young_entries,
            "files": len(manifest.files),
        }
    return found


def read(files: fs.S3FileSystem, location: str) -> bytes:
    """An object of the lake."""
    parts = urlsplit(location)
    with files.open_input_stream(f"{parts.netloc}{parts.path}", compression=None) as stream:
        return bytes(stream.read())


def packed(files: fs.S3FileSystem, prefix: str) -> bytes:
    """The objects below a prefix; the same ones give the same archive."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        found = files.get_file_info(fs.FileSelector(prefix, recursive=True))
        for path in sorted(each.path for each in found if each.type is fs.FileType.File):
            content = read(files, f"s3://{path}")
            member = tarfile.TarInfo(path.removeprefix(f"{prefix}/"))
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return gzip.compress(out.getvalue(), mtime=0)


def storage(store: ObjectStore) -> dict[str, Any]:
    """The section of a document."""
    return {
        "s3": {
            "endpoint": store.endpoint,
            "path_style": True,
            "access_key_id": store.access_key,
            "secret_access_key": store.secret_key,
        }
    }


def record(release: str, out: Path) -> int:
    """Fill the lake and keep it."""
    with (
        tempfile.TemporaryDirectory(dir="/tmp") as name,
        embedded_postgres(version=18) as postgres,
        seaweedfs(bucket=BUCKET) as store,
    ):
        folder = Path(name)
        folder.chmod(0o755)
        sections = {
            **SECTIONS,
            "catalog": {
                "name": "recorded",
                "kind": "sql",
                "uri": f"sqlite:///{folder}/catalog.db",
                "warehouse": f"s3://{BUCKET}/{release}",
            },
            "storage": storage(store),
        }
        session_document = folder / "session.yaml"
        source = {"kind": "postgres", "dsn": postgres.dsn}
        session_document.write_text(json.dumps({**sections, "source": source}))
        files = fs.S3FileSystem(
            access_key=store.access_key,
            secret_key=store.secret_key,
            endpoint_override=store.endpoint,
            region=store.region,
        )
        with (
            open_session(load_config(session_document, environ={}).config) as spark,
            captured_database(spark, postgres, folder, **sections) as db,
        ):
            fill(db)
            described = describe(db, files)
        archive = packed(files, f"{BUCKET}/{release}")
    (out / f"lake-{release}.tar.gz").write_bytes(archive)
    text = json.dumps(described, indent=1, ensure_ascii=False)
    (out / f"lake-{release}.json").write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(record(sys.argv[1], Path(sys.argv[2])))
