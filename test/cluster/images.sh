# To be sourced. compile COMMAND runs a command that calls `go build`, with the
# environment with which the cluster's own programs are built (build.go): both share
# most of their packages, which are compiled once then.
compile() { GOFLAGS=-gcflags=all=-dwarf=false GOGC=400 "$@"; }

# build_images ROOT TAG builds both images as archives for containerd
# in IMAGES_DIR (default: ROOT/_output/images) and sets IMAGES to their paths, comma
# separated.

build_images() {
  local root=$1 tag=$2 out=${IMAGES_DIR:-$1/_output/images} name
  [ "$(id -u)" = 0 ] || { echo "the cluster makes network namespaces and mounts: run this as root" >&2; return 1; }
  if ! command -v buildah >/dev/null; then
    command -v apt-get >/dev/null || { echo "buildah is not installed; install it, or run this on Debian" >&2; return 1; }
    echo "installing buildah"
    # Debian 13's buildah ends without netavark, and does not depend on it.
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends buildah netavark >/dev/null
  fi
  mkdir -p "$out"
  (cd "$root" && compile make --no-print-directory build VERSION="$tag")
  IMAGES=
  for name in frontend:dra-frontend actuator:nri-actuator; do
    local file=Dockerfile.${name%%:*} image=${name##*:}
    # chroot and vfs need neither namespaces nor overlay mounts. The image has no name in buildah's storage, which other checkouts
    # use as well, and does not stay there.
    (cd "$root" && buildah --storage-driver vfs bud --isolation chroot -q -f "$file" --iidfile "$out/$image.id" . >/dev/null)
    rm -f "$out/$image.tar"
    buildah --storage-driver vfs push -q "$(cat "$out/$image.id")" "docker-archive:$out/$image.tar:docker.io/dra-cpumem/$image:$tag"
    buildah --storage-driver vfs rmi "$(cat "$out/$image.id")" >/dev/null
    IMAGES=${IMAGES:+$IMAGES,}$out/$image.tar
  done
}

# changed_before ROOT prints the commit before the last change of the product, nothing
# without a history.
changed_before() {
  { git -C "$1" log -2 --format=%h -- cmd cdi-contract dra-frontend nri-actuator ':!*_test.go' ':!*/testdata/*' 2>/dev/null || true; } |
    sed -n 2p
}

# build_previous ROOT COMMIT builds the images of a commit with the tag "previous", and
# adds them to IMAGES.
build_previous() {
  local root=$1 commit=$2 these=$IMAGES tree=${IMAGES_DIR:-$1/_output}/previous
  rm -rf "$tree"
  git clone -q "$root" "$tree"
  git -C "$tree" checkout -q "$commit"
  IMAGES_DIR=$tree/_output/images build_images "$tree" previous
  IMAGES=$these,$IMAGES
}
