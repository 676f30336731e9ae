r"""A changelog becomes a mirror, in a notebook or a job of your own.

Needs a Spark 4.1 session whose catalog `lake` is one of Iceberg's. In a notebook that has one,
paste the cells; on the command line:

    spark-submit --packages org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0 \
        --conf spark.sql.catalog.lake=org.apache.iceberg.spark.SparkCatalog \
        --conf spark.sql.catalog.lake.type=rest \
        --conf spark.sql.catalog.lake.uri=https://catalog.example.com \
        --conf spark.sql.catalog.lake.warehouse=main \
        examples/merge_table.py
"""

# %% The session is yours: frazil neither builds nor stops it.
from pyspark.sql import SparkSession

import frazil

spark = SparkSession.builder.getOrCreate()

# %% A changelog: any append-only table with a key, an operation and something that orders changes.
spark.sql("create namespace if not exists lake.example")
spark.sql(
    """
    create table if not exists lake.example.users_changelog (
        id bigint,
        name string,
        op string,
        lsn bigint
    )
    using iceberg
    """
)
spark.sql(
    """
    insert into lake.example.users_changelog
    values
        (1, 'Ada', 'INSERT', 101),
        (2, 'Grace', 'INSERT', 102),
        (3, 'Edsger', 'INSERT', 103)
    """
)


# %% The first merge creates the mirror. Nobody promised in which order this changelog's changes
# arrive, so the sequence decides (`order` is `per_key`), and the mirror keeps it.
def merge() -> frazil.MergeReport:
    """Merge what is new; nothing new is no work."""
    return frazil.merge_table(
        spark,
        changelog="lake.example.users_changelog",
        mirror="lake.example.users",
        keys=["id"],
        sequence="lsn",
        operation="op",
    )


first = merge()
print(f"first merge: {first.rows_read} changes in {first.seconds:.1f} s")
spark.sql("select * from lake.example.users order by id").show()

# %% Changes come in: an update, a delete, and one that is late and must not win.
spark.sql(
    """
    insert into lake.example.users_changelog
    values
        (1, 'Ada Lovelace', 'UPDATE', 105),
        (1, 'Ada Byron', 'UPDATE', 104),
        (3, null, 'DELETE', 106)
    """
)
second = merge()
print({action.value: keys for action, keys in second.counts.items()})
spark.sql("select * from lake.example.users order by id").show()

# %% Merging again finds nothing to do.
assert merge().commits == ()
