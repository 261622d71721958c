package remote_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/bench/rig"
	"github.com/chokepoint-lab/chokepoint/internal/analysis/diagnosis"
)

var (
	faults = flag.Bool("faults", false, "plant ten faults over ssh")
	least  = flag.Int("least", 9, "how many of them must be named right")
)

// planted is a fault and what names it right.
type planted struct {
	levels map[string]string // of the cell
	class  string
	node   string // "" any
}

// tenFaults returns those of bench/diagnosis that bite on a kernel without netem, at both ends, on the router
// and on the path.
func tenFaults() []planted {
	up := func(more ...string) levels {
		l := levels{"direction": "up"}
		for i := 0; i < len(more); i += 2 {
			l[more[i]] = more[i+1]
		}
		return l
	}
	down := func(more ...string) levels { return up(append(more, "direction", "down")...) }
	tunnel := []string{"tunnel", "wireguard-userspace", "fault"}
	return []planted{
		{up("streams", "2", "fault@router.wan", "link_rate=40M"), "link-rate", "router"},
		{up("fault@client.lan", "link_rate=25M"), "link-rate", "client"},
		{down("streams", "2", "queue@router.lan", "htb rate 60M burst 128k"), "shaper", "router"},
		{up("streams", "2", "fault@client", "slow_writer=30M"), "slow-sender", "client"},
		{down("fault@client", "slow_reader=50M"), "slow-reader", "client"},
		{up("streams", "4", "queue@router.wan", "tbf rate 20M burst 32k limit 2m"), "bufferbloat", "router"},
		{up("streams", "2", "fault@router", "rules=4000"), "rule-list", "router"},
		{up(append(tunnel, "tunnel_mtu=1500")...), "fragmentation", ""},
		{up("fault@router.wan", "pmtu_hole=1350"), "pmtu-black-hole", "router"},
		{up(append(tunnel, "bypass=on")...), "tunnel-bypassed", ""},
	}
}

type levels = map[string]string

func faultPlan(all []planted) string {
	var b strings.Builder
	b.WriteString("name: faults\nmethod: {duration: 4s, warmup: 500ms, cooldown: 200ms, idle: 500ms, " +
		"runs: 2, seed: 1}\nmeasure: {verify: false}\ninclude:\n")
	for _, p := range all {
		cell, _ := json.Marshal(p.levels) // of strings alone
		fmt.Fprintf(&b, "  - %s\n", cell)
	}

	return b.String()
}

// TestFaultsOverSSH plants ten faults by one plan, and wants nine of them to be named.
func TestFaultsOverSSH(t *testing.T) {
	if !*faults {
		t.Skip("skip: it loads the machine for three minutes: -faults asks for it")
	}

	work := t.TempDir()
	program, err := rig.NewProgram(work, *binary, os.Geteuid())
	keys := filepath.Join(work, "keys")
	file := program.At("faults.yaml")
	if err := errors.Join(err, makeKeys(keys, machines()),
		os.WriteFile(file, []byte(faultPlan(tenFaults())), 0o600)); err != nil {
		t.Fatal(err)
	}

	b, err := newBed(t, work, keys, 1, program, machines())
	if err != nil {
		t.Fatal(err)
	}

	before, err := b.machines["router"].settled()
	if err != nil {
		t.Fatal(err)
	}

	asked, forget := signal.NotifyContext(t.Context(), os.Interrupt, syscall.SIGTERM)
	defer forget()
	// A hole of the path lets its trials fail, which is exit code 3.
	said := b.shown(asked, t, 9*time.Minute, file, "faults.json", 3)
	var d struct {
		Cells []struct {
			Factors   map[string]any
			Diagnosis *diagnosis.Diagnosis
		}
	}
	if err := json.Unmarshal([]byte(said), &d); err != nil {
		t.Fatal(err)
	}

	right := 0
	there := 0
	out := t.Output()
	fmt.Fprintln(out, "| planted | class | named | sure to | where |\n|---|---|---|---:|---|")
	for _, p := range tenFaults() {
		named := "no cell"
		where := ""
		sure := 0.
		for _, cell := range d.Cells {
			if !has(cell.Factors, p.levels) {
				continue
			}

			if named = "nothing"; cell.Diagnosis == nil {
				continue
			}

			named = cell.Diagnosis.Class
			sure = cell.Diagnosis.Confidence
			if len(cell.Diagnosis.Causes) > 0 {
				c := cell.Diagnosis.Causes[0]
				where = strings.TrimSuffix(c.Node+" "+c.Element, " ")
				if named == p.class && (p.node == "" || c.Node == p.node) {
					there++
				}
			}
		}

		if named == p.class {
			right++
		}

		cell, _ := json.Marshal(p.levels) // of strings alone
		fmt.Fprintf(out, "| `%s` | %s | %s | %.2f | %s |\n", cell, p.class, named, sure, cmp.Or(where, "–"))
	}

	fmt.Fprintf(out, "note: %d of %d were named right, %d of them where they were planted\n", right,
		len(tenFaults()), there)
	if right < *least {
		t.Errorf("%d of %d were named right, want %d", right, len(tenFaults()), *least)
	}

	after, err := b.machines["router"].state()
	left := difference(before, after, "")
	if err != nil || len(left) > 0 {
		t.Errorf("the router is not as before: %v, %s", err, strings.Join(left, "; "))
	}
}

// has says that a cell has these levels, as they are spelt in a plan.
func has(factors map[string]any, want levels) bool {
	for name, level := range want {
		if fmt.Sprint(factors[name]) != level {
			return false
		}
	}
	return true
}
