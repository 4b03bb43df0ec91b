// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func (c *Cluster) namespace() string { return "cpumem-" + c.id() }
func (c *Cluster) hostLink() string  { return "cpumem" + c.id() } // 14 of the 15 characters a link name may have

// networkUp makes the namespace with a bridge, a tap for each node, and a link that makes the host a machine of the
// cluster's network. The bridge has the API server's address and the service address of `kubernetes`, so that pods
// reach the API without a service proxy.
func (c *Cluster) networkUp(ctx context.Context) error {
	ns, link := c.namespace(), c.hostLink()
	commands := [][]string{
		{"netns", "add", ns},
		{"-n", ns, "link", "set", "lo", "up"},
		{"-n", ns, "link", "add", "br0", "type", "bridge"},
		{"-n", ns, "addr", "add", c.apiAddress().String() + "/24", "dev", "br0"},
		{"-n", ns, "addr", "add", c.serviceAPI().String() + "/32", "dev", "br0"},
		{"-n", ns, "link", "set", "br0", "up"},
		{"link", "add", link, "type", "veth", "peer", "name", "host0", "netns", ns},
		{"-n", ns, "link", "set", "host0", "master", "br0", "up"},
		{"addr", "add", c.hostAddress().String() + "/24", "dev", link},
		{"link", "set", link, "up"},
		{"route", "add", c.allPods(), "via", c.apiAddress().String(), "dev", link},
	}
	for i := range c.opts.Nodes {
		tap := fmt.Sprintf("tap%d", i)
		commands = append(commands,
			[]string{"-n", ns, "tuntap", "add", "dev", tap, "mode", "tap"},
			[]string{"-n", ns, "link", "set", tap, "master", "br0", "up"},
			[]string{"-n", ns, "route", "add", c.podRange(i), "via", c.nodeAddress(i).String()})
	}
	for _, args := range commands {
		if out, err := exec.CommandContext(ctx, "ip", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, out)
		}
	}
	forward := c.InNamespace("sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward")
	if out, err := exec.CommandContext(ctx, forward[0], forward[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("let namespace %s forward packets: %w: %s", ns, err, out)
	}
	return nil
}

// chooseSubnet takes the first free subnet if the options leave the choice to Up, and checks the options' subnet
// otherwise. A cluster whose processes were killed from outside keeps its addresses until its own Down, so another
// directory's cluster must not depend on one fixed subnet.
func (c *Cluster) chooseSubnet() error {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return fmt.Errorf("addresses of this host: %w", err)
	}
	var used []*net.IPNet
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil {
			used = append(used, n)
		}
	}
	c.opts.Subnet, err = freeSubnet(c.opts.Subnet, used)
	return err
}

// freeSubnet returns wanted, or the first free subnet from firstSubnet upwards if wanted is 0. It is an error if an
// address or a network of the host, used, overlaps.
func freeSubnet(wanted int, used []*net.IPNet) (int, error) {
	candidates := []int{wanted}
	if wanted == 0 {
		candidates = candidates[:0]
		for n := firstSubnet; n <= 255; n++ {
			candidates = append(candidates, n)
		}
	}
	var err error
	for _, candidate := range candidates {
		ours := &net.IPNet{IP: net.IPv4(10, byte(candidate), 0, 0).To4(), Mask: net.CIDRMask(16, 32)}
		taken := slices.IndexFunc(used, func(n *net.IPNet) bool { return ours.Contains(n.IP) || n.Contains(ours.IP) })
		if taken < 0 {
			return candidate, nil
		}
		err = fmt.Errorf("this host already has %s inside the cluster's %s: choose another subnet", used[taken], ours)
	}
	return 0, err
}

func (c *Cluster) networkDown() error {
	if _, err := net.InterfaceByName(c.hostLink()); err == nil {
		if out, err := exec.Command("ip", "link", "del", c.hostLink()).CombinedOutput(); err != nil {
			return fmt.Errorf("ip link del %s: %w: %s", c.hostLink(), err, out)
		}
	}
	if _, err := os.Stat(filepath.Join("/run/netns", c.namespace())); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if out, err := exec.Command("ip", "netns", "del", c.namespace()).CombinedOutput(); err != nil {
		return fmt.Errorf("ip netns del %s: %w: %s", c.namespace(), err, out)
	}
	return nil
}

// processes returns the ids of all processes in the cluster's network namespace.
func (c *Cluster) processes() []int {
	var ns syscall.Stat_t
	if err := syscall.Stat(filepath.Join("/run/netns", c.namespace()), &ns); err != nil {
		return nil
	}
	found, err := filepath.Glob("/proc/[0-9]*/ns/net")
	if err != nil {
		return nil
	}
	var pids []int
	for _, f := range found {
		var st syscall.Stat_t
		if err := syscall.Stat(f, &st); err != nil || st.Ino != ns.Ino || st.Dev != ns.Dev {
			continue // ended meanwhile, or not ours
		}
		if pid, err := strconv.Atoi(strings.Split(f, "/")[2]); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// killAll kills the processes of the cluster and waits until they are gone, memory and open files included. They have
// no state that is worth a gentle end.
func (c *Cluster) killAll() error {
	deadline := time.Now().Add(20 * time.Second)
	killed := map[int]bool{}
	for {
		for _, pid := range c.processes() {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("kill %d: %w", pid, err)
			}
			killed[pid] = true
		}
		for pid := range killed {
			if ended(pid) {
				delete(killed, pid)
			}
		}
		if len(killed) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("processes %v of the cluster do not end after SIGKILL: see /proc/PID/stack for what holds them",
				slices.Collect(maps.Keys(killed)))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// ended reports whether a process is gone or a zombie. processes cannot answer this: a process that ends leaves the
// namespace before it gives back its memory.
func ended(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, after, _ := strings.Cut(string(data), ") ")
	return strings.HasPrefix(after, "Z") || strings.HasPrefix(after, "X")
}
