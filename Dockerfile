# One image for every Spark app, the DAGs and the command line. Its steps are the scripts that `make setup` runs.
FROM python:3.11-slim-bookworm AS base

WORKDIR /opt/regroup
COPY .ci/setup.sh .ci/
RUN .ci/setup.sh java libraries && rm -rf /var/lib/apt/lists/*

# The compiler stays behind in this stage.
FROM base AS build

RUN .ci/setup.sh python compiler
COPY .ci/bootstrap.txt .ci/
COPY requirements.lock ./
RUN .ci/setup.sh packages

COPY pyproject.toml setup.py README.md LICENSE ./
COPY coordinator_core coordinator_core
COPY spark_apps spark_apps
COPY expectations expectations
COPY dags dags
RUN .ci/setup.sh project

FROM base

RUN useradd --create-home --uid 10001 regroup && chown regroup:regroup /opt/regroup
COPY --from=build --chown=regroup /opt/regroup /opt/regroup
USER regroup

ENV PATH=/opt/regroup/.venv/bin:$PATH \
    AIRFLOW__CORE__DAGS_FOLDER=/opt/regroup/dags \
    AIRFLOW__CORE__LOAD_EXAMPLES=false
# `docker run IMAGE describe …` is `regroup describe …`; --entrypoint spark-submit or airflow for the rest.
ENTRYPOINT ["regroup"]
CMD ["--help"]
