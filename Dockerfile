# One image for every Spark app, the DAGs and the command line. Its steps are the scripts that `make setup` runs.
FROM python:3.11-slim-bookworm

WORKDIR /opt/regroup
RUN useradd --create-home --uid 10001 regroup && chown regroup:regroup /opt/regroup

COPY --chown=regroup .ci/setup.sh .ci/bootstrap.txt .ci/
RUN .ci/setup.sh java && rm -rf /var/lib/apt/lists/*

USER regroup
RUN .ci/setup.sh python

COPY --chown=regroup requirements.lock ./
RUN .ci/setup.sh packages && rm -rf "$HOME/.cache"

COPY --chown=regroup pyproject.toml README.md LICENSE ./
COPY --chown=regroup coordinator_core coordinator_core
COPY --chown=regroup spark_apps spark_apps
COPY --chown=regroup expectations expectations
COPY --chown=regroup dags dags
RUN .ci/setup.sh project

ENV PATH=/opt/regroup/.venv/bin:$PATH \
    AIRFLOW__CORE__DAGS_FOLDER=/opt/regroup/dags \
    AIRFLOW__CORE__LOAD_EXAMPLES=false
# `docker run IMAGE describe …` is `regroup describe …`; --entrypoint spark-submit or airflow for the rest.
ENTRYPOINT ["regroup"]
CMD ["--help"]
