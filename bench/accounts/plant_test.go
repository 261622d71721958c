package accounts

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"

	"github.com/chokepoint-lab/chokepoint/bench/rig"
	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// plant arranges what is done to packets; count undoes it, and says how many it was done to.
func (b stand) plant(r row) (count func(*record.Traffic, *account)) {
	switch {
	case r.netem != nil:
		return b.plantNetem(r)
	case r.plant == reordering:
		held := b.helper("router", relayRole)
		return func(_ *record.Traffic, a *account) { a.planted[2] = b.number(held()) }
	case r.plant == nothing:
		return func(*record.Traffic, *account) {}
	}

	mark := fmt.Sprintf("@th,%d,8 %d", 64+datagramMark, datagramWindow)
	if r.mode == "" {
		mark = fmt.Sprintf("@th,%d,2 %d", 64+framesMark, framesWindow)
	}

	deed, into := "drop", 0
	if r.plant == duplicates {
		deed = fmt.Sprintf("dup to %v device \"wan\"", b.lab.Address(0, 1, 4))
		into = 1
	}

	rules := fmt.Sprintf("table ip planted {\n chain forward {\n type filter hook forward priority 0\n udp "+
		"dport %d %s numgen inc mod 1000 0 counter %s\n }\n}\n", port, mark, deed)
	b.onRouter(rules, "nft", "-f", "-")
	return func(_ *record.Traffic, a *account) {
		a.planted[into] = b.find(`counter packets (\d+)`, b.onRouter("", "nft", "list", "table", "ip", "planted"))[0]
		b.onRouter("", "nft", "delete", "table", "ip", "planted")
	}
}

// onRouter runs a command on the router to its end.
func (b stand) onRouter(input string, args ...string) string {
	b.Helper()
	out, err := rig.Exec(b.Context(), b.lab, "router", input, args...)
	must(b.T, err)
	return out
}

// find reads the numbers in a text.
func (b stand) find(pattern, text string) (numbers []int64) {
	b.Helper()
	m := regexp.MustCompile(pattern).FindStringSubmatch(text)
	if m == nil {
		b.Fatalf("no counter in %q", text)
	}

	for _, digits := range m[1:] {
		numbers = append(numbers, b.number(digits))
	}

	return numbers
}

func (b stand) number(text string) int64 {
	b.Helper()
	n, err := strconv.ParseInt(text, 10, 64)
	must(b.T, err)
	return n
}

// helper starts this program in a role on a node, and waits until it is ready. It ends when it is asked what
// it saw.
func (b stand) helper(node, role string) (saw func() string) {
	n, err := b.lab.Node(b.Context(), node)
	must(b.T, err)
	in, end := io.Pipe()
	p, err := agent.NewHost(node, n.Agent).Start(b.Context(), host.Command{
		Path:  "/proc/self/exe",
		Args:  []string{role},
		Stdin: in,
	})
	must(b.T, err)
	go io.Copy(os.Stderr, p.Stderr())
	out := bufio.NewScanner(p.Stdout())
	next := func() string {
		if !out.Scan() {
			_, err := p.Wait()
			b.Fatalf("%s on %s ended: %v", role, node, err)
		}
		return out.Text()
	}
	if line := next(); line != "ready" {
		b.Fatalf("%s on %s says %q", role, node, line)
	}

	return func() string {
		end.Close()
		line := next()
		_, err := p.Wait()
		must(b.T, err)
		return line
	}
}
