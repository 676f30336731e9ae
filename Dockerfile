# syntax=docker/dockerfile:1
# Two stages: the first makes the environment and fetches every jar, the second has what runs.
ARG BASE=python:3.12-slim-bookworm

FROM ${BASE} AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 FRAZIL_CACHE=/opt/frazil/cache
RUN apt-get update && apt-get install --yes --no-install-recommends openjdk-17-jre-headless
WORKDIR /build
COPY requirements/production.lock requirements/build.lock requirements/
RUN python3 -m venv /opt/frazil/venv \
    && /opt/frazil/venv/bin/python -m pip install --quiet --require-hashes -r requirements/build.lock \
    && /opt/frazil/venv/bin/python -m pip install --quiet --no-build-isolation --require-hashes -r requirements/production.lock
COPY pyproject.toml README.md CHANGELOG.md LICENSE ./
COPY src src
RUN /opt/frazil/venv/bin/python -m pip install --quiet --no-deps --no-build-isolation . \
    && /opt/frazil/venv/bin/frazil setup \
    && /opt/frazil/venv/bin/frazil version
COPY tools/__init__.py tools/sbom.py tools/
RUN /opt/frazil/venv/bin/python -m tools.sbom /opt/frazil/sbom.cdx.json \
    && /opt/frazil/venv/bin/python -m pip uninstall --quiet --yes hatchling editables setuptools wheel \
    && chmod -R a+rX /opt/frazil

FROM ${BASE}
LABEL org.opencontainers.image.title="frazil" \
      org.opencontainers.image.description="Streams of changes become Apache Iceberg tables." \
      org.opencontainers.image.licenses="Apache-2.0"
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless tini procps \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --gid 10001 frazil \
    && useradd --uid 10001 --gid frazil --no-create-home --home-dir /var/lib/frazil --shell /usr/sbin/nologin frazil \
    && install --directory --owner=frazil --group=frazil --mode=0750 /var/lib/frazil \
    && install --directory --mode=0755 /etc/frazil
COPY --from=build /opt/frazil /opt/frazil
COPY --chmod=0755 docker/entrypoint.sh /opt/frazil/entrypoint.sh
ENV PATH=/opt/frazil/venv/bin:/usr/local/bin:/usr/bin:/bin \
    FRAZIL_CACHE=/opt/frazil/cache \
    HOME=/var/lib/frazil \
    PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
WORKDIR /var/lib/frazil
# Spool, index cache and what Spark spills; the rest of the file system may be read-only.
VOLUME ["/var/lib/frazil", "/tmp"]
EXPOSE 9093
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=5s --start-period=2m \
    CMD ["python3", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:9093/healthz', timeout=4)"]
ENTRYPOINT ["tini", "--", "/opt/frazil/entrypoint.sh"]
CMD ["run", "-c", "/etc/frazil/frazil.yaml"]
