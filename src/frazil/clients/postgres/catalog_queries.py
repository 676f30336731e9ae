"""The questions to PostgreSQL's catalog, for versions 14 to 18.

A column that an older version lacks is selected through the row as JSON, where it is then null.
Every statement loads many tables at once.
"""

SERVER = """
    select
        current_setting('server_version_num')::int,
        (select system_identifier::text from pg_control_system()),
        case
            when pg_is_in_recovery() then (select timeline_id from pg_control_checkpoint())
            -- The first eight digits of a log file's name; the control file knows it later.
            else ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int
        end,
        current_database()::text,
        current_setting('server_encoding'),
        pg_is_in_recovery(),
        (select count(*)::int from pg_replication_slots),
        (select count(*)::int from pg_stat_activity where backend_type = 'walsender'),
        coalesce(inet_server_addr() <<= '127.0.0.0/8' or inet_server_addr() = '::1', true),
        extract(epoch from clock_timestamp())::float8
"""

SETTINGS = """
    select name, setting, unit
    from pg_settings
    where name = any(%(names)s)
"""

# Amazon grants the right through a role of its own instead of the attribute.
ROLE = """
    select
        role.rolname::text,
        role.rolsuper,
        role.rolsuper or role.rolreplication or exists (
            select
            from pg_roles as granting
            where granting.rolname = 'rds_replication' and pg_has_role(granting.oid, 'usage')
        ),
        role.rolsuper or role.rolbypassrls,
        has_database_privilege(current_database(), 'create')
    from pg_roles as role
    where role.rolname = current_user
"""

SLOT = """
    select
        slot_name::text,
        plugin::text,
        database::text,
        temporary,
        active,
        confirmed_flush_lsn::text,
        restart_lsn::text,
        wal_status,
        safe_wal_size,
        to_jsonb(slot) ->> 'invalidation_reason',
        coalesce(two_phase, false),
        coalesce((to_jsonb(slot) ->> 'failover')::bool, false)
    from pg_replication_slots as slot
    where slot_name = %(slot)s
"""

# Those of one pipeline begin alike.
SLOT_READERS = """
    select
        slot.slot_name::text,
        slot.temporary,
        slot.active_pid,
        nullif(reader.application_name, ''),
        reader.usename::text
    from pg_replication_slots as slot
    left join pg_stat_activity as reader on reader.pid = slot.active_pid
    where starts_with(slot.slot_name::text, %(prefix)s)
    order by 1
"""

PUBLICATION = """
    select
        oid,
        pubname::text,
        pg_has_role(pubowner, 'usage'),
        puballtables,
        pubinsert,
        pubupdate,
        pubdelete,
        pubtruncate,
        pubviaroot,
        coalesce(to_jsonb(publication) ->> 'pubgencols', 'n') = 's',
        publication.xmin::text::int8
    from pg_publication as publication
    where pubname = %(publication)s
"""


def _published(columns: str, *, has_list: str, row_filter: str, by_schema: str) -> str:
    """What a publication sends.

    The view shows roots or leaves, whichever the publication sends, and what it sends of them. A
    table is a member itself, through its root, or with its schema.
    """
    return f"""
    select
        relation.oid,
        published.schemaname::text,
        published.tablename::text,
        coalesce(member.oid, above.oid, {by_schema}),
        {columns},
        {has_list},
        {row_filter},
        member.oid is null and above.oid is null
    from pg_publication_tables as published
    join pg_namespace as namespace on namespace.nspname = published.schemaname
    join pg_class as relation
        on relation.relnamespace = namespace.oid and relation.relname = published.tablename
    left join pg_publication_rel as member
        on member.prpubid = %(oid)s and member.prrelid = relation.oid
    cross join lateral (
        select max(root.oid) as oid
        from pg_partition_ancestors(relation.oid) as ancestor
        join pg_publication_rel as root
            on root.prpubid = %(oid)s and root.prrelid = ancestor.relid
    ) as above
    where published.pubname = %(publication)s
    order by 2, 3
"""  # noqa: S608 - made of constants


PUBLISHED = _published(
    "published.attnames::text[]",
    has_list="coalesce(to_jsonb(member) -> 'prattrs', 'null') <> 'null'",
    row_filter="published.rowfilter",
    by_schema="""(
            select of_schema.oid
            from pg_publication_namespace as of_schema
            where of_schema.pnpubid = %(oid)s and of_schema.pnnspid = namespace.oid
        )""",
)

# Version 14 has neither column lists nor row filters nor publications of a schema, and its view
# does not show the columns.
PUBLISHED_14 = _published(
    """array(
            select attname::text
            from pg_attribute
            where attrelid = relation.oid
                and attnum > 0
                and not attisdropped
                and attgenerated = ''
            order by attnum
        )""",
    has_list="false",
    row_filter="null::text",
    by_schema="null",
)

RELATIONS = """
    select
        relation.oid,
        namespace.nspname::text,
        relation.relname::text,
        relation.relkind::text,
        case when relation.relispartition then pg_partition_root(relation.oid)::oid end
    from pg_class as relation
    join pg_namespace as namespace on namespace.oid = relation.relnamespace
    where relation.relkind in ('r', 'p', 'v', 'm', 'f')
        and relation.relpersistence <> 't'
        and namespace.nspname not in ('pg_catalog', 'information_schema')
        and namespace.nspname not like 'pg\\_toast%%'
        and namespace.nspname not like 'pg\\_temp\\_%%'
    order by 2, 3
"""

# A key that may be deferred is no replica identity: the server then sends no old row at all.
TABLES = """
    select
        relation.oid,
        namespace.nspname::text,
        relation.relname::text,
        relation.relkind::text,
        -- The rows of a partitioned table are as durable as its leaves are.
        case
            when relation.relkind = 'p' and exists (
                select
                from pg_partition_tree(relation.oid) as part
                join pg_class as leaf on leaf.oid = part.relid
                where part.isleaf and leaf.relpersistence = 'u'
            ) then 'u'
            else relation.relpersistence::text
        end,
        case when relation.relispartition then pg_partition_root(relation.oid)::oid end,
        relation.relreplident::text,
        case relation.relreplident
            when 'f' then array(
                select attnum
                from pg_attribute
                where attrelid = relation.oid and attnum > 0 and not attisdropped
                order by attnum
            )
            when 'i' then (named.indkey::int2[])[0:named.indnkeyatts - 1]
            when 'd' then case
                when key.indimmediate then (key.indkey::int2[])[0:key.indnkeyatts - 1]
            end
        end,
        (key.indkey::int2[])[0:key.indnkeyatts - 1],
        not coalesce(key.indimmediate, true),
        case when relation.reltuples >= 0 then relation.relpages end,
        case when relation.reltuples >= 0 then relation.reltuples::int8 end,
        relation.relrowsecurity
            and (not pg_has_role(relation.relowner, 'usage') or relation.relforcerowsecurity),
        has_schema_privilege(namespace.oid, 'usage'),
        has_table_privilege(relation.oid, 'select')
            or not exists (
                select
                from pg_attribute
                where attrelid = relation.oid
                    and attnum > 0
                    and not attisdropped
                    and not has_column_privilege(relation.oid, attnum, 'select')
            ),
        pg_has_role(relation.relowner, 'usage'),
        -- Only a move of the table to another schema, and back, writes this row again.
        (
            select max(depends.xmin::text::int8)
            from pg_depend as depends
            where depends.classid = 'pg_catalog.pg_class'::regclass
                and depends.objid = relation.oid
                and depends.objsubid = 0
                and depends.refclassid = 'pg_catalog.pg_namespace'::regclass
        ),
        relation.reltoastrelid
    from pg_class as relation
    join pg_namespace as namespace on namespace.oid = relation.relnamespace
    left join pg_index as key
        on key.indrelid = relation.oid and key.indisprimary and key.indisvalid
    left join pg_index as named
        on named.indrelid = relation.oid and named.indisreplident and named.indisvalid
    where relation.oid = any(%(oids)s)
    order by 2, 3
"""

# A domain may represent a domain: the last base type is what counts. A partitioned table has no
# rows, so that its leaves alone know what older rows show; where they differ, it is unknown.
ATTRIBUTES = """
    with recursive base as (
        select
            type.oid as type_oid,
            type.typbasetype as next,
            type.oid as found
        from pg_type as type
        where type.oid in (
            select atttypid
            from pg_attribute
            where attrelid = any(%(oids)s) and attnum > 0 and not attisdropped
        )
        union all
        select base.type_oid, type.typbasetype, type.oid
        from base
        join pg_type as type on type.oid = base.next
        where base.next <> 0
    ),
    leaf as (
        select
            root.oid as root,
            attribute.attname as name,
            min((attribute.attmissingval::text::text[])[1]) as fewest,
            max((attribute.attmissingval::text::text[])[1]) as most
        from pg_class as root
        cross join pg_partition_tree(root.oid) as part
        join pg_attribute as attribute on attribute.attrelid = part.relid
        where root.oid = any(%(oids)s)
            and root.relkind = 'p'
            and part.isleaf
            and attribute.atthasmissing
        group by root.oid, attribute.attname
    )
    select
        attribute.attrelid,
        attribute.attnum,
        attribute.attname::text,
        attribute.atttypid,
        attribute.atttypmod,
        format_type(attribute.atttypid, attribute.atttypmod),
        base.found,
        case when type.typcategory = 'A' then nullif(type.typelem, 0) end,
        attribute.attnotnull,
        attribute.attgenerated::text,
        case
            when attribute.atthasmissing then (attribute.attmissingval::text::text[])[1]
            when leaf.fewest = leaf.most then leaf.fewest
        end,
        attribute.atthasdef
            or attribute.attidentity <> ''
            -- A column without a default of its own begins with its type's.
            or own_type.typdefault is not null
            or leaf.fewest is not null
    from pg_attribute as attribute
    join base on base.type_oid = attribute.atttypid and base.next = 0
    join pg_type as type on type.oid = base.found
    join pg_type as own_type on own_type.oid = attribute.atttypid
    left join leaf on leaf.root = attribute.attrelid and leaf.name = attribute.attname
    where attribute.attrelid = any(%(oids)s)
        and attribute.attnum > 0
        and not attribute.attisdropped
    order by attribute.attrelid, attribute.attnum
"""

# The row of a column outlives it: a number is never given twice. Who changed a row last, or
# dropped the column, signed it.
NUMBERS = """
    select attrelid, attnum, attisdropped, xmin::text::int8
    from pg_attribute
    where attrelid = any(%(oids)s) and attnum > 0
    order by attrelid, attnum
"""

# What keeps rows apart at every moment: no index over a part of the rows, or over what is computed,
# and none that is only checked when a transaction ends. A null is like no other.
UNIQUE_KEYS = """
    select
        index.indrelid,
        coalesce(made.oid, index.indexrelid),
        index.indexrelid,
        (index.indkey::int2[])[0:index.indnkeyatts - 1],
        coalesce(made.xmin, index.xmin)::text::int8
    from pg_index as index
    left join pg_constraint as made
        on made.conindid = index.indexrelid
            and made.conrelid = index.indrelid
            and made.contype in ('p', 'u')
    where index.indrelid = any(%(oids)s)
        and index.indisunique
        and index.indimmediate
        and index.indisvalid
        and index.indislive
        and index.indpred is null
        and index.indexprs is null
        and not exists (
            select
            from pg_attribute as nullable
            where nullable.attrelid = index.indrelid
                and nullable.attnum = any((index.indkey::int2[])[0:index.indnkeyatts - 1])
                and (
                    not nullable.attnotnull
                    -- Since server 18, a column may be called so before its rows were checked.
                    or exists (
                        select
                        from pg_constraint as promised
                        where promised.conrelid = nullable.attrelid
                            and promised.contype = 'n'
                            and not promised.convalidated
                            and nullable.attnum = any(promised.conkey)
                    )
                )
        )
    order by 1, 2
"""

# With all types they are made of. An element type proves no array: only what is printed as one
# is one.
TYPES = """
    with recursive needed as (
        select oid
        from pg_type
        where oid = any(%(oids)s)
        union
        select case when type.typtype = 'd' then type.typbasetype else type.typelem end
        from needed
        join pg_type as type on type.oid = needed.oid
        where type.typtype = 'd' or type.typoutput = 'pg_catalog.array_out'::regproc
    )
    select
        type.oid,
        format_type(type.oid, null),
        case
            -- A domain has the output of its base.
            when type.typtype = 'd' then 'd'
            when type.typoutput = 'pg_catalog.array_out'::regproc then 'a'
            else type.typtype::text
        end,
        case
            when type.typtype = 'd' then type.typbasetype
            when type.typoutput = 'pg_catalog.array_out'::regproc then type.typelem
            else 0::oid
        end,
        type.typtypmod,
        type.typdelim::text
    from needed
    join pg_type as type on type.oid = needed.oid
    order by type.oid
"""

# Where the rows of a table are: in its leaves, or in itself.
LEAVES = """
    select
        root.oid,
        leaf.oid,
        namespace.nspname::text,
        leaf.relname::text,
        (pg_relation_size(leaf.oid) / %(block_bytes)s)::int8
    from pg_class as root
    cross join lateral (
        select root.oid as part where root.relkind = 'r'
        union all
        select part.relid::oid
        from pg_partition_tree(root.oid) as part
        where root.relkind = 'p' and part.isleaf
    ) as parts
    join pg_class as leaf on leaf.oid = parts.part and leaf.relkind = 'r'
    join pg_namespace as namespace on namespace.oid = leaf.relnamespace
    where root.oid = any(%(oids)s)
    order by 1, 2
"""

# Locks are shown to all roles, what a session does only to its own role and to administrators.
OPEN_TRANSACTIONS = """
    select
        lock.pid,
        activity.usename::text,
        extract(epoch from clock_timestamp() - activity.xact_start)::float8,
        null::text
    from pg_locks as lock
    left join pg_stat_activity as activity on activity.pid = lock.pid
    where lock.locktype = 'transactionid'
        and lock.mode = 'ExclusiveLock'
        and lock.granted
        and lock.pid is not null
        and lock.pid <> pg_backend_pid()
    group by 1, 2, 3, 4
    union all
    select
        null::int,
        owner::text,
        extract(epoch from clock_timestamp() - prepared)::float8,
        gid::text
    from pg_prepared_xacts
    order by 3 desc nulls first, 1
"""

CURRENT_LSN = """
    select case
        when pg_is_in_recovery() then pg_last_wal_replay_lsn()
        else pg_current_wal_flush_lsn()
    end::text
"""
