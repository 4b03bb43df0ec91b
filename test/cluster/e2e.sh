#!/usr/bin/env bash
# Builds the driver's images and runs the cluster cases. Arguments go to the test
# program.
#   KEEP=1      leaves the cluster running
#   REUSE=1     runs on the cluster that KEEP=1 has left, with the driver that is in it
#   KERNEL=stable|backports|newest is the kernel of all nodes
#   STEPS=n     how long the observers observe (200 take about half an hour on two
#               cores; many more need a longer -timeout among the arguments), how many
#               pods start during upgrades, up to 40, and whether 60 containers start
#               during each fault (60 or more)
#   LONG=1      also runs the cases that CI leaves out because they take long
#   PREVIOUS=commit builds images of that commit as well, for the case of versions;
#               LONG=1 takes the commit before the last change of the product
#   PAGE=file   is an absolute path: the cases of bench-footprint and bench-churn write
#               their results into this page
#   KERNEL_ARGS='hugepagesz=1G hugepages=1:1' gives the nodes' kernels more words
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
. "$here/images.sh"
[ -n "${REUSE:-}" ] && IMAGES=none || build_images "$root" e2e
[ -z "${LONG:-}" ] || [ -n "${REUSE:-}" ] || PREVIOUS=${PREVIOUS-$(changed_before "$root")}
if [ -n "${PREVIOUS:-}" ] && [ -z "${REUSE:-}" ]; then
  build_previous "$root" "$PREVIOUS"
fi
cd "$here"
GOWORK=off exec go test -tags e2e ./e2e -count=1 -timeout ${LONG:+2}60m -v "$@" \
  -args -images "$IMAGES" -tag e2e -logs "${CPUMEM_CLUSTER_DIR:-$root/_output/cluster}-logs" \
  ${KEEP:+-keep} ${LONG:+-long} ${REUSE:+-reuse} ${STEPS:+-steps "$STEPS"} ${PREVIOUS:+-previous previous} \
  ${PAGE:+-page "$PAGE"} ${KERNEL:+-kernel "$KERNEL"} ${KERNEL_ARGS:+-kernel-args "$KERNEL_ARGS"}
