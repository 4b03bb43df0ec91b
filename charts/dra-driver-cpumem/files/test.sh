# Compares this container's cgroup with what the claim's CDI devices say.
# The environment is read from /proc: names with dashes do not survive sh.
vars=$(tr '\0' '\n' < /proc/$$/environ)
cgroup=${CGROUP:-/sys/fs/cgroup}
failed=0

check() { # file, what the claim says
  got=$(cat "$cgroup/$1")
  if [ "$got" = "$2" ]; then
    echo "ok    $1 = $got"
  else
    echo "WRONG $1 = $got, the claim says $2"
    failed=1
  fi
}

cpus=$(echo "$vars" | sed -n 's/^DRA_CPUSET_[^=]*=//p' | sed -n 1p)
decision=$(echo "$vars" | sed -n 's/^DRA_CPUMEM_[^=]*=//p' | sed -n 1p)
mems=$(echo "$decision" | sed -n 's/.*"mems":"\([^"]*\)".*/\1/p')
max=$(echo "$decision" | sed -n 's/.*"memory":{[^}]*"max":"*\([0-9a-z]*\).*/\1/p')

if [ -z "$cpus" ] || [ -z "$mems" ]; then
  echo "WRONG no decision in the environment: the claim's CDI devices were not injected"
  exit 1
fi
check cpuset.cpus.effective "$cpus"
check cpuset.mems.effective "$mems"
if [ -n "$max" ]; then
  check memory.max "$max"
fi
exit $failed
