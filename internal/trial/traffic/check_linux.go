package traffic

import (
	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// CheckFlows answers for a node that is to have the flows of a load.
func CheckFlows(q Request) check.Answer {
	load := q.Load
	if a := checkDescriptors(load); a.State != check.Yes {
		return a
	}
	if load.Protocol != "tcp" {
		return check.OK()
	}
	for _, cc := range Congestions(load) {
		if a := checkCongestion(cc); a.State != check.Yes {
			return a
		}
	}
	return check.OK()
}

// checkDescriptors: each flow has a socket, and while connections are made each of these is open twice.
func checkDescriptors(load record.Load) check.Answer {
	need, limit := uint64(len(FlowsOf(load))+64), unix.Rlimit{}
	if load.Protocol == "tcp" {
		need *= 2
	}
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return check.CouldNotTell("read the limit of open files: %v", err)
	}
	if limit.Cur < need {
		return check.Not("%d flows need %d open files, and %d are allowed", len(FlowsOf(load)), need,
			limit.Cur).Hinted("raise the limit, see ulimit -n")
	}
	return check.OK()
}

func checkCongestion(cc string) check.Answer {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return check.CouldNotTell("open a TCP socket: %v", err)
	}
	defer unix.Close(fd)
	err = unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, cc)
	switch err {
	case nil:
		return check.OK()
	case unix.ENOENT:
		return check.Not("congestion control %s: the kernel does not have it", cc).
			Hinted("see /proc/sys/net/ipv4/tcp_available_congestion_control; a module may be missing")
	case unix.EPERM:
		return check.Not("congestion control %s: not allowed for ordinary users", cc).
			Hinted("add it to net.ipv4.tcp_allowed_congestion_control")
	}
	return check.CouldNotTell("congestion control %s: %v", cc, err)
}
