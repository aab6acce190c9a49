# dupq with all of its jobs: docker build -t dupq . ; docs/operations.md says how it runs.
ARG PYTHON=python:3.11-slim
# PIN: python:3.11-slim@sha256:DIGEST
FROM $PYTHON
# The index of torch's builds for CPUs. Without it pip takes one for CUDA, of gigabytes, and Triton needs a compiler.
ARG TORCH_INDEX
# wget is what Kubernetes asks with whether Ray is well
RUN apt-get -qq update && apt-get -qq install -y --no-install-recommends 7zip wget \
       $([ -n "$TORCH_INDEX" ] || echo gcc libc6-dev) \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --gid 10001 dupq && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /tmp dupq
WORKDIR /opt/dupq
COPY requirements.lock requirements-torch.lock ./
RUN pip install -q --no-cache-dir --require-hashes --no-deps -r requirements.lock \
    && pip install -q --no-cache-dir -r requirements-torch.lock ${TORCH_INDEX:+--index-url $TORCH_INDEX}
COPY pyproject.toml README.md LICENSE ./
COPY dupq dupq
COPY papers papers
# compiled here once: where the container runs, nothing but /tmp and what is mounted may be writable
ENV NUMBA_CACHE_DIR=/opt/dupq/compiled RAY_USAGE_STATS_ENABLED=0
RUN pip install -q --no-cache-dir --no-deps --no-build-isolation . ./papers && dupq warm
USER 10001:10001
WORKDIR /data
ENTRYPOINT ["dupq"]
