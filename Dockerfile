# Three images of one wheel: docker build --target cli|spark|airflow . (docs/install.md)

FROM python:3.11-slim-bookworm AS base

RUN --mount=type=bind,source=.ci,target=/build/.ci \
    /build/.ci/setup.sh libraries && rm -rf /var/lib/apt/lists/*

# Compiler, installers and sources stay behind in this stage.
FROM base AS build

WORKDIR /build
COPY .ci .ci
RUN .ci/setup.sh compiler && pip install --no-cache-dir --require-hashes -r .ci/bootstrap.txt
COPY pyproject.toml setup.py MANIFEST.in README.md LICENSE ./
COPY coordinator_core coordinator_core
COPY spark_apps spark_apps
COPY expectations expectations
COPY dags dags
RUN pip wheel --no-index --no-deps --no-build-isolation --wheel-dir dist .

FROM build AS cli-packages

RUN --mount=type=cache,target=/var/cache/uv .ci/install.sh core /opt/regroup

# `docker run IMAGE describe …` is `regroup describe …`.
FROM base AS cli

RUN useradd --create-home --uid 10001 regroup
COPY --from=cli-packages /opt/regroup /opt/regroup
ENV PATH=/opt/regroup/bin:$PATH
USER 10001
ENTRYPOINT ["regroup"]
CMD ["--help"]

FROM build AS spark-packages

RUN --mount=type=cache,target=/var/cache/uv .ci/install.sh spark /opt/regroup

# Driver and executor on Kubernetes, by the entry point of Spark's image. That image has Python 3.10, so its distribution of
# Spark is not taken: the locked package `pyspark` holds the same jars.
FROM base AS spark

RUN --mount=type=bind,source=.ci,target=/build/.ci \
    /build/.ci/setup.sh java && apt-get install -y --no-install-recommends libnss-wrapper tini \
    && rm -rf /var/lib/apt/lists/* && useradd --create-home --uid 185 --gid root spark && chmod g+w /home/spark
COPY --from=apache/spark:4.2.0-scala2.13-java17-ubuntu /opt/entrypoint.sh /opt/decom.sh /opt/
COPY --from=spark-packages /opt/regroup /opt/regroup
RUN ln -s regroup/lib/python3.11/site-packages/pyspark /opt/spark \
    && ln -s lib/python3.11/site-packages/spark_apps /opt/regroup/spark_apps
ENV PATH=/opt/regroup/bin:$PATH \
    SPARK_HOME=/opt/spark \
    PYSPARK_PYTHON=/opt/regroup/bin/python
WORKDIR /home/spark
USER 185
ENTRYPOINT ["/opt/entrypoint.sh"]

# Every component of Airflow; a driver of Spark runs where a worker runs.
FROM apache/airflow:3.3.2-python3.11 AS airflow

USER root
RUN --mount=type=bind,source=.ci,target=/build/.ci \
    /build/.ci/setup.sh java libraries && rm -rf /var/lib/apt/lists/*
RUN --mount=type=bind,from=build,target=/from --mount=type=cache,target=/var/cache/uv \
    UV=/from/usr/local/bin/uv /from/build/.ci/install.sh airflow /home/airflow/.local
ENV AIRFLOW__CORE__DAGS_FOLDER=/home/airflow/.local/lib/python3.11/site-packages/dags \
    AIRFLOW__CORE__LOAD_EXAMPLES=false
USER airflow
