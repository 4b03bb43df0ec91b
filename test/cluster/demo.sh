#!/usr/bin/env bash
# Builds the driver's images, boots a cluster for the demo, installs the chart, and
# shows what a claim does. Each promise is checked. Arguments go to the demo program.
#   KEEP=1   leaves the cluster running
#   REUSE=1  takes the cluster and the images that `make e2e KEEP=1` has left
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)

fail() { echo "demo: $*" >&2; exit 1; }

[ "$(id -u)" = 0 ] || fail "it makes network namespaces and mounts: run it as root"
want=$(sed -n 's/^go //p' "$here/go.mod")
command -v go >/dev/null || fail "go is not in PATH: install Go $want or later (https://go.dev/dl)"
have=$(go env GOVERSION)
[ "$(printf '%s\n' "$want" "${have#go}" | sort -V | head -n 1)" = "$want" ] ||
  fail "go is version ${have#go}: install Go $want or later (https://go.dev/dl)"

dir=${CPUMEM_CLUSTER_DIR:-$root/_output/cluster}
. "$here/images.sh"
echo "demo: compiling itself" >&2
(cd "$here" && CGO_ENABLED=0 GOWORK=off compile go build -trimpath -o "$root/_output/demo" ./cmd/demo)
cd "$root"
tag=demo IMAGES=none
if [ -n "${REUSE:-}" ]; then
  tag=e2e
else
  "$root/_output/demo" -free # before the images, which take minutes
  echo "demo: building the driver and its images" >&2
  IMAGES_DIR=$root/_output/demo-images build_images "$root" demo
fi
exec "$root/_output/demo" -images "$IMAGES" -tag "$tag" -logs "$dir-logs" ${KEEP:+-keep} ${REUSE:+-reuse} "$@"
