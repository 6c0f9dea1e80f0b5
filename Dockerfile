# One image for brokers, the operator and the tools. Build it in the project's root:
#   docker build --tag registry.example.com/kafscale:1 .
# A broker to try, for clients of this machine:
#   docker run --read-only --tmpfs /tmp --publish 127.0.0.1:9092:9092 \
#     --env KAFSCALE_LISTENERS=PLAINTEXT://:9092 --env KAFSCALE_ALLOW_PLAINTEXT=true \
#     --env KAFSCALE_ADVERTISED_LISTENERS=PLAINTEXT://localhost:9092 --volume kafscale:/var/lib/kafscale registry.example.com/kafscale:1
FROM docker.io/library/python:3.11-slim-bookworm@sha256:a36c24f9cbdf4fd0f52d67f0823eeac19c2028c637cecc392d97f980d4fec56b AS build
# A version would be gone from Debian's servers with the next one.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --yes --no-install-recommends binutils \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /src
# What Kafscale needs comes before Kafscale: it changes seldom. Wheels only: they run on every Debian, and nothing
# is compiled. Nothing that is not in the file, by version and hash (make lock).
COPY deploy/requirements.txt ./
RUN python -m venv --without-pip /opt/kafscale \
 && python -m pip --python /opt/kafscale/bin/python install --no-cache-dir --no-compile --only-binary :all: \
      --require-hashes --requirement requirements.txt
COPY pyproject.toml README.md LICENSE ./
COPY kafscale kafscale
RUN python -m pip --python /opt/kafscale/bin/python install --no-cache-dir --no-compile --no-deps . \
 # Debugging symbols are a third of it all.
 && find /opt/kafscale -name '*.so*' -type f -exec strip --strip-debug {} + \
 # Of the descriptions of all of Amazon's services, those of buckets and of credentials.
 && find /opt/kafscale/lib/python3*/site-packages/botocore/data -mindepth 1 -maxdepth 1 -type d \
      ! -name s3 ! -name sts ! -name 'sso*' -exec rm -r {} + \
 # The root file system is read-only: what is not compiled here would be at every start.
 && /opt/kafscale/bin/python -m compileall -q -f -j 0 --invalidation-mode unchecked-hash /opt/kafscale/lib

FROM docker.io/library/python:3.11-slim-bookworm@sha256:a36c24f9cbdf4fd0f52d67f0823eeac19c2028c637cecc392d97f980d4fec56b
LABEL org.opencontainers.image.title="Kafscale" \
      org.opencontainers.image.description="Kafka-wire-compatible stateless broker over an object store: broker, operator and tools"
RUN groupadd --gid 10001 kafscale \
 && useradd --uid 10001 --gid 10001 --no-log-init --no-create-home --home-dir /tmp --shell /usr/sbin/nologin kafscale \
 && install --directory --mode=0700 --owner=10001 --group=10001 /var/lib/kafscale
COPY --from=build /opt/kafscale /opt/kafscale
# Where Kafka clients are served must be said (KAFSCALE_LISTENERS): the default is the container's loopback address.
# The folder is for a broker without a bucket.
ENV PATH=/opt/kafscale/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    KAFSCALE_METRICS_ADDR=:9093 \
    KAFSCALE_DATA_DIR=/var/lib/kafscale
VOLUME /var/lib/kafscale
EXPOSE 9092 9093
USER 10001:10001
WORKDIR /tmp
# For engines that look at it; Kubernetes has probes of its own.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s CMD ["python", "-m", "kafscale.ops.health_check"]
ENTRYPOINT ["kafscale"]
CMD ["serve"]
