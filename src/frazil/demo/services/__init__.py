"""Embedded services: real servers as child processes, each for a ``with`` block.

Every server listens on a free loopback port, is ready when its block begins, writes its log into
a file, and cannot outlive this process, even if that is killed. Start with ``process.py``.
"""

from __future__ import annotations

from frazil.demo.services.etcd import EtcdServer, etcd
from frazil.demo.services.postgres import Postgres, PostgresVersion, embedded_postgres
from frazil.demo.services.rest_catalog import RestCatalog, rest_catalog
from frazil.demo.services.seaweedfs import ObjectStore, seaweedfs

__all__ = [
    "EtcdServer",
    "ObjectStore",
    "Postgres",
    "PostgresVersion",
    "RestCatalog",
    "embedded_postgres",
    "etcd",
    "rest_catalog",
    "seaweedfs",
]
