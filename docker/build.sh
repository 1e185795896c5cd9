#!/bin/sh
# The sources -> image icebridge:VERSION (.env), by docker or else by buildah. `make images` runs it.
# Where no image registry is reached, the base image is made from Debian's packages under the name that the Dockerfile
# has: BASE=debian (needs root, mmdebstrap and podman).
set -eu
cd "$(dirname "$0")/.."
. docker/.env
tag=icebridge:$ICEBRIDGE_VERSION
certificates=/etc/ssl/certs
# Perl comes with usrmerge, which has done its work by then; the real base has none either.
if [ "${BASE:-}" = debian ] && ! podman image exists "docker.io/library/python:$PYTHON_VERSION-slim"; then
  base=$(mktemp --suffix=.tar)
  mmdebstrap --variant=minbase --include=usr-is-merged,python3,python3-venv,python-is-python3,ca-certificates \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
    --dpkgopt='path-exclude=/usr/share/man/*' \
    --customize-hook='chroot "$1" apt-get purge --yes usrmerge "^perl-modules"' \
    --customize-hook='rm -rf "$1"/var/lib/apt/lists/* "$1"/var/cache/apt/*' bookworm "$base"
  podman import --change "ENV PIP_CERT=$certificates/ca-certificates.crt" \
    --change "ENV REQUESTS_CA_BUNDLE=$certificates/ca-certificates.crt" \
    --change "ENV SSL_CERT_FILE=$certificates/ca-certificates.crt" \
    "$base" "docker.io/library/python:$PYTHON_VERSION-slim"
  rm -f "$base"
fi
if [ "${BASE:-}" != debian ] && docker info > /dev/null 2>&1; then
  docker build --tag "$tag" --file docker/Dockerfile --build-arg "PYTHON_VERSION=$PYTHON_VERSION" \
    ${STORES:+--build-arg "STORES=$STORES"} ${REQUIREMENTS:+--build-arg "REQUIREMENTS=$REQUIREMENTS"} .
  docker image inspect --format '{{.Size}}' "$tag"
else
  # docker's format: that of OCI has no health check. chroot: no right to make namespaces is needed.
  buildah bud --format docker --isolation chroot --network host --volume "$certificates:$certificates:ro" \
    --ignorefile docker/Dockerfile.dockerignore --build-arg "PYTHON_VERSION=$PYTHON_VERSION" \
    ${STORES:+--build-arg "STORES=$STORES"} ${REQUIREMENTS:+--build-arg "REQUIREMENTS=$REQUIREMENTS"} --tag "$tag" --file docker/Dockerfile .
  podman image inspect --format '{{.Size}}' "$tag"
fi
