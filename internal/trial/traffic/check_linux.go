package traffic

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/chokepoint-lab/chokepoint/internal/check"
)

// CheckFlows checks whether a node can open the flows of a load.
func CheckFlows(q Request) check.Answer {
	flows := len(FlowsOf(q.Load))
	need := flows + hellosAtOnce // because up to hellosAtOnce sockets are open twice
	var controls []string
	if q.Load.Protocol == "tcp" { // because each connection is open twice while it is being established
		controls = Congestions(q.Load)
		need = 2 * flows
	}

	a := CheckDescriptors(fmt.Sprintf("%d flows", flows), need+2*64)
	for _, cc := range controls {
		if a.State == check.Yes {
			a = checkCongestion(cc)
		}
	}

	return a
}

// CheckDescriptors checks whether the process may open the needed number of files.
func CheckDescriptors(what string, need int) check.Answer {
	limit := unix.Rlimit{}
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return check.CouldNotTell("read the limit of open files: %v", err)
	}

	if limit.Cur < uint64(need) {
		return check.Not("%s need %d open files, and %d are allowed", what, need, limit.Cur).
			Hinted("raise the limit, see ulimit -n")
	}

	return check.OK()
}

func checkCongestion(cc string) check.Answer {
	_, err := TryCongestion(cc)
	switch {
	case err == nil:
		return check.OK()
	case errors.Is(err, unix.ENOENT):
		offers, _ := os.ReadFile("/proc/sys/net/ipv4/tcp_available_congestion_control")
		return check.Not("congestion control %s: the kernel does not have it, but %s", cc,
			strings.Join(strings.Fields(string(offers)), ", ")).
			Hinted("load the module tcp_%s, or take a kernel that has it", cc)
	case errors.Is(err, unix.EPERM):
		return check.Not("congestion control %s: not allowed for ordinary users", cc).
			Hinted("add it to net.ipv4.tcp_allowed_congestion_control")
	}
	return check.CouldNotTell("%v", err)
}
