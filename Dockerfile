# dupq with all of its jobs: docker build -t dupq . ; docs/operations.md says how it runs.
FROM python:3.11-slim
ARG TORCH_INDEX # the index of torch's builds for CPUs; without it pip takes one for CUDA, of gigabytes
RUN apt-get -qq update && apt-get -qq install -y --no-install-recommends 7zip && rm -rf /var/lib/apt/lists/* \
    && useradd --system --no-create-home --home-dir /tmp dupq
WORKDIR /opt/dupq
COPY requirements.lock requirements-torch.lock ./
RUN pip install -q --no-cache-dir --require-hashes --no-deps -r requirements.lock \
    && pip install -q --no-cache-dir -r requirements-torch.lock ${TORCH_INDEX:+--index-url $TORCH_INDEX}
COPY pyproject.toml README.md LICENSE ./
COPY dupq dupq
COPY papers papers
# compiled here once: where the container runs, nothing but /tmp and what is mounted may be writable
ENV NUMBA_CACHE_DIR=/opt/dupq/compiled
RUN pip install -q --no-cache-dir --no-deps --no-build-isolation . && dupq warm
USER dupq
WORKDIR /data
ENTRYPOINT ["dupq"]
