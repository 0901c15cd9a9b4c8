#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs a program of MPI on two "hosts" of this machine: two network, host-name and mount namespaces, and a virtual Ethernet link.
#
#   two_hosts.sh openmpi|mpich RANKS COMMAND...   RANKS on each; data between them goes by TCP
#
# TWO_HOSTS_PRELOAD: what MPICH's ranks are preloaded with, and its launcher is not.
# Exit status 77, and one line that says what is refused: namespaces cannot be made here.
# It is also the agent by which the launchers start processes on a host: two_hosts.sh ADDRESS COMMAND...
set -u
readonly prefix=10.213.77

# As a launcher calls it: options, the address, the command in one word or in several.
if [[ -n ${TWO_HOSTS-} ]]; then
  while [[ ${1-} == -* ]]; do shift; done
  read -r first second <<<"$TWO_HOSTS"
  case $1 in
    "$prefix.1") holder=$first ;;
    "$prefix.2") holder=$second ;;
    *) echo "two_hosts: no host $1" >&2; exit 2 ;;
  esac
  shift
  unset TWO_HOSTS
  exec nsenter -t "$holder" -m -n -u -- /bin/sh -c "$*"
fi

mpi=$1
ranks=$2
shift 2
holders=()
# The namespaces, and the link, end with the processes that hold them.
finish() { kill "${holders[@]}" 2>/dev/null; }
trap finish EXIT

refused() {
  echo "two_hosts: $1"
  exit 77
}

for host in 0 1; do
  reason=$(unshare --mount --net --uts mount -t sysfs sysfs /sys 2>&1) || refused "$reason"
  # (UCX looks for its devices in /sys.)
  unshare --mount --net --uts sh -c "mount -t sysfs sysfs /sys && hostname gx$host && exec sleep 600" >/dev/null 2>&1 </dev/null &
  holders+=($!)
done
own=$(readlink /proc/self/ns/net)
for holder in "${holders[@]}"; do
  for ((i = 0; i < 200; ++i)); do
    [[ $(cat "/proc/$holder/comm" 2>/dev/null) == sleep && $(readlink "/proc/$holder/ns/net") != "$own" ]] && break
    sleep 0.02
  done
done
reason=$(ip link add gxlink netns "${holders[0]}" type veth peer name gxlink netns "${holders[1]}" 2>&1) || refused "$reason"
for host in 0 1; do
  reason=$(nsenter -t "${holders[$host]}" -n sh -c "ip link set lo up && ip addr add $prefix.$((host + 1))/24 dev gxlink &&
    ip link set gxlink up" 2>&1) || refused "$reason"
done

# The kernel says a little later that the link is up.
for holder in "${holders[@]}"; do
  for ((i = 0; i < 200; ++i)); do
    [[ $(nsenter -t "$holder" -m -n cat /sys/class/net/gxlink/operstate) == up ]] && break
    sleep 0.02
  done
done

export TWO_HOSTS="${holders[*]}"
self=$(readlink -f "$0")
if [[ $mpi == openmpi ]]; then
  launch=(mpirun.openmpi --host "$prefix.1:$ranks,$prefix.2:$ranks" --mca plm_rsh_agent "$self" --mca btl "${TWO_HOSTS_BTL:-tcp,vader,self}"
    --mca btl_tcp_if_include "$prefix.0/24" --mca oob_tcp_if_include "$prefix.0/24" --bind-to none -n $((2 * ranks)))
else
  # UCX takes the two for one host, and would use its shared memory.
  export UCX_TLS=tcp,self UCX_NET_DEVICES=gxlink
  launch=(mpirun.mpich ${TWO_HOSTS_PRELOAD:+-genv LD_PRELOAD "$TWO_HOSTS_PRELOAD"} -launcher ssh -launcher-exec "$self" -hosts "$prefix.1:$ranks,$prefix.2:$ranks" -n $((2 * ranks)))
fi
nsenter -t "${holders[0]}" -m -n -u -- timeout --kill-after=5 "${TWO_HOSTS_LIMIT:-120}" "${launch[@]}" "$@"
