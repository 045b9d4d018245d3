# One environment, one image per service: `docker compose build` makes them all. Up to /opt/venv they share every layer.

ARG PYTHON_IMAGE=python:3.13-slim


FROM ${PYTHON_IMAGE} AS environment
# Where pip finds packages, if not where it looks by itself: an index of your own, a folder of wheels, a certificate.
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ARG PIP_TRUSTED_HOST
ENV PIP_CACHE_DIR=/var/cache/pip PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /src
COPY requirements/base.txt requirements/parquet.txt requirements/nvml.txt requirements/build.txt requirements/
RUN --mount=type=cache,id=pip,target=/var/cache/pip,sharing=locked \
    python -m venv /opt/venv && python -m venv /opt/build \
    && /opt/venv/bin/pip install --quiet --require-hashes -r requirements/base.txt -r requirements/parquet.txt \
        -r requirements/nvml.txt \
    && /opt/build/bin/pip install --quiet --require-hashes -r requirements/build.txt
# Both distributions without their code: the command `mathrag`, and versions that the code can ask for.
COPY pyproject.toml LICENSE ./
COPY mathrag/pyproject.toml mathrag/
RUN --mount=type=cache,id=pip,target=/var/cache/pip,sharing=locked \
    mkdir -p mathrag/cli mathrag/client/groups mathrag/reading \
    && /opt/build/bin/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir /opt/build/wheels ./mathrag . \
    && /opt/venv/bin/pip install --quiet --no-deps --no-index /opt/build/wheels/*.whl \
    && /opt/venv/bin/pip uninstall --quiet --yes pip


FROM ${PYTHON_IMAGE} AS code
WORKDIR /app
COPY shared shared
COPY services services
COPY mathrag mathrag
COPY mathrag_gate mathrag_gate
# The images' files belong to root and cannot be written, so nobody could compile them later.
RUN python -m compileall -q .


FROM ${PYTHON_IMAGE} AS base
RUN groupadd --system --gid 10001 mathrag \
    && useradd --system --uid 10001 --gid mathrag --home-dir /data --shell /usr/sbin/nologin mathrag \
    && install -d -m 700 -o mathrag -g mathrag /data
COPY --from=environment /opt/venv /opt/venv
ENV PATH=/opt/venv/bin:$PATH PYTHONPATH=/app PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    MATHRAG_DATA_DIR=/data MATHRAG_TELEMETRY__LOG_FORMAT=json
WORKDIR /app
COPY --from=code /app/mathrag mathrag
COPY --from=code /app/shared shared
COPY --from=code /app/services/__init__.py services/
# Whoever submits a job pins it to these weights, whoever answers has to have the same.
COPY models/difficulty/weights.json models/difficulty/
STOPSIGNAL SIGTERM
USER mathrag
ARG VERSION=0.1.0
ARG REVISION
ENV MATHRAG_COMMIT=${REVISION}
LABEL org.opencontainers.image.title="MathRAG-Gate" \
    org.opencontainers.image.licenses="MIT" \
    org.opencontainers.image.version="${VERSION}" \
    org.opencontainers.image.revision="${REVISION}"


# Brings the schema to the newest version, as the database's owner, and ends.
FROM base AS migrate
COPY migrations migrations
ENV ALEMBIC_CONFIG=/app/migrations/alembic.ini
CMD ["alembic", "upgrade", "head"]


FROM migrate AS orchestrator
COPY --from=code /app/services/orchestrator services/orchestrator
# For `docker compose exec orchestrator mathrag ...`.
COPY --from=code /app/mathrag_gate mathrag_gate
COPY docs docs
EXPOSE 8080
HEALTHCHECK --interval=30s --timeout=10s --start-period=60s --start-interval=2s \
    CMD ["python", "-m", "shared.probe", "http://127.0.0.1:8080/healthz"]
# Beyond loopback, so it asks for API keys.
CMD ["python", "-m", "services.orchestrator", "--host", "0.0.0.0", "--port", "8080"]


FROM base AS retriever
COPY models/static-embeddings models/static-embeddings
COPY --from=code /app/services/retriever services/retriever
EXPOSE 8081
HEALTHCHECK --interval=30s --timeout=10s --start-period=60s --start-interval=2s \
    CMD ["python", "-m", "shared.probe", "http://127.0.0.1:8081/healthz"]
CMD ["python", "-m", "services.retriever", "--host", "0.0.0.0", "--port", "8081"]


FROM base AS guard
USER root
# llama.cpp's threads. Imported at once: a library that is missing should not be found by the first job.
RUN apt-get update -qq && apt-get install -qq --yes --no-install-recommends libgomp1 \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin \
    && python -c 'import xllamacpp'
USER mathrag
COPY models/*.gguf models/
COPY --from=code /app/services/guard services/guard
EXPOSE 8082
HEALTHCHECK --interval=30s --timeout=10s --start-period=120s --start-interval=2s \
    CMD ["python", "-m", "shared.probe", "http://127.0.0.1:8082/healthz"]
CMD ["python", "-m", "services.guard", "--host", "0.0.0.0", "--port", "8082"]


FROM base AS judge
COPY models/static-embeddings models/static-embeddings
COPY --from=code /app/services/judge services/judge
HEALTHCHECK --interval=30s --timeout=10s --start-period=60s --start-interval=2s \
    CMD ["python", "-m", "shared.runtime.heartbeats", "judge"]
CMD ["python", "-m", "services.judge"]


FROM base AS generator
COPY --from=code /app/services/generator services/generator
HEALTHCHECK --interval=30s --timeout=10s --start-period=60s --start-interval=2s \
    CMD ["python", "-m", "shared.runtime.heartbeats", "generate"]
CMD ["python", "-m", "services.generator"]
