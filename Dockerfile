# syntax=docker/dockerfile:1
# Two stages: the first makes the environment and fetches every jar, the second has what runs.
ARG BASE=python:3.12-slim-bookworm

FROM ${BASE} AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 FRAZIL_CACHE=/opt/frazil/cache JAVA_HOME=/opt/java
# A Java of the modules that Spark, Iceberg and the clients of stores ask for: a third of Debian's own.
# Its packages expect the folder of manual pages, which slim bases lack.
RUN mkdir -p /usr/share/man/man1 \
    && apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jdk-headless \
    && jlink --output /opt/java --compress=2 --strip-java-debug-attributes --no-header-files --no-man-pages \
        --add-modules java.se,jdk.charsets,jdk.crypto.ec,jdk.httpserver,jdk.incubator.vector,jdk.jcmd,jdk.jfr,jdk.management,jdk.management.agent,jdk.naming.dns,jdk.net,jdk.nio.mapmode,jdk.security.auth,jdk.security.jgss,jdk.unsupported,jdk.xml.dom,jdk.zipfs \
    && cp --dereference --remove-destination /etc/ssl/certs/java/cacerts /opt/java/lib/security/cacerts
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
    && /opt/frazil/venv/bin/python -m pip uninstall --quiet --yes hatchling editables setuptools wheel pip
# What frazil never asks for: tests and headers of packages, Arrow Flight, machine learning, Spark Connect, Spark's shell,
# the state store of Structured Streaming, and libraries of other systems.
RUN cd /opt/frazil/venv/lib/python3*/site-packages \
    && rm -r pandas/tests pyarrow/tests pyarrow/include pyspark/examples pyspark/data \
        pyarrow/*flight* \
    && find numpy -type d -name tests -prune -exec rm -r {} + \
    && cd pyspark/jars \
    && rm rocksdbjni-* breeze* spire* cats-kernel* algebra* arpack* blas-* lapack-* spark-mllib_* spark-graphx_* \
        spark-connect_* spark-repl_* scala-compiler-* jline-* *-osx-* *-windows-* \
    && chmod -R a+rX /opt/frazil /opt/java

FROM ${BASE}
LABEL org.opencontainers.image.title="frazil" \
      org.opencontainers.image.description="Streams of changes become Apache Iceberg tables." \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN apt-get update \
    && apt-get install --yes --no-install-recommends tini procps \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* \
    && groupadd --gid 10001 frazil \
    && useradd --uid 10001 --gid frazil --no-create-home --home-dir /var/lib/frazil --shell /usr/sbin/nologin frazil \
    && install --directory --owner=frazil --group=frazil --mode=0750 /var/lib/frazil \
    && install --directory --mode=0755 /etc/frazil
COPY --from=build /opt/java /opt/java
COPY --from=build /opt/frazil /opt/frazil
COPY --chmod=0755 docker/entrypoint.sh docker/healthcheck.py /opt/frazil/
ENV PATH=/opt/frazil/venv/bin:/opt/java/bin:/usr/local/bin:/usr/bin:/bin \
    JAVA_HOME=/opt/java \
    FRAZIL_CACHE=/opt/frazil/cache \
    HOME=/var/lib/frazil \
    PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
WORKDIR /var/lib/frazil
# Spool, index cache and what Spark spills; the rest of the file system may be read-only.
VOLUME ["/var/lib/frazil", "/tmp"]
EXPOSE 9093
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=5s --start-period=2m CMD ["python3", "/opt/frazil/healthcheck.py"]
ENTRYPOINT ["tini", "--", "/opt/frazil/entrypoint.sh"]
CMD ["run", "-c", "/etc/frazil/frazil.yaml"]
