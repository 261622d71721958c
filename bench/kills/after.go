package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"time"
)

// machine is what a run could leave changed, as sorted lines.
type machine []string

// observe looks at namespaces, links, nftables rules and processes.
func observe() (machine, error) {
	var m machine
	links, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list links: %v", err)
	}
	for _, l := range links {
		m = append(m, "link "+l.Name)
	}
	named, err := os.ReadDir("/run/netns")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("list named namespaces: %v", err)
	}
	for _, n := range named {
		m = append(m, "named namespace "+n.Name())
	}
	procs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for _, p := range procs {
		// Processes come and go while this looks; what is gone is no trace.
		if ns, err := os.Readlink(p + "/ns/net"); err == nil {
			seen["namespace "+ns] = true
		}
		exe, _ := os.Readlink(p + "/exe")
		name := strings.TrimSuffix(filepath.Base(exe), " (deleted)")
		if name == "chokepoint" || name == "chokepoint-agent" || name == "iperf3" {
			seen["process "+filepath.Base(p)+" "+name] = true
		}
	}
	for line := range seen {
		m = append(m, line)
	}
	// Without the program nothing of this machine can have made a rule that
	// outlives its namespace, so its absence loses nothing.
	if rules, err := exec.Command("nft", "list", "ruleset").Output(); err == nil {
		for _, line := range strings.Split(string(rules), "\n") {
			m = append(m, "nft "+line)
		}
	}
	sort.Strings(m)
	return m, nil
}

// leftBehind compares with the machine before, allowing the kernel some time
// to remove what nobody holds any more.
func leftBehind(before machine) []string {
	deadline := time.Now().Add(vanishing)
	for {
		now, err := observe()
		if err != nil {
			return []string{err.Error()}
		}
		faults := compare(before, now)
		if len(faults) == 0 || time.Now().After(deadline) {
			return faults
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func compare(before, now machine) []string {
	var faults []string
	for _, line := range now {
		if !slices.Contains(before, line) {
			faults = append(faults, "left: "+line)
		}
	}
	for _, line := range before {
		if !slices.Contains(now, line) {
			faults = append(faults, "gone: "+line)
		}
	}
	return faults
}

func storedRuns(ctx context.Context, o options) ([]string, error) {
	out, err := o.command(ctx, "list", "--json").Output()
	if err != nil {
		return nil, fmt.Errorf("list: %v", err)
	}
	var ids []string
	for _, line := range bytes.Split(out, []byte("\n")) {
		var head struct{ ID string }
		if len(line) > 0 {
			if err := json.Unmarshal(line, &head); err != nil || head.ID == "" {
				return nil, fmt.Errorf("list: line %q has no id", line)
			}
			ids = append(ids, head.ID)
		}
	}
	return ids, nil
}

// checkStore: every run, killed or not, can be shown; the trials that were
// reported as finished are there, once, and whole.
func checkStore(ctx context.Context, o options, known []string, t told) []string {
	ids, err := storedRuns(ctx, o)
	if err != nil {
		return []string{err.Error()}
	}
	var faults []string
	for _, id := range known {
		if !slices.Contains(ids, id) {
			faults = append(faults, "run "+id+" is lost")
		}
	}
	if t.run == "" {
		return faults // it was killed before it stored its head
	}
	out, err := o.command(ctx, "show", "--json", t.run).Output()
	if err != nil {
		return append(faults, fmt.Sprintf("show --json %s: %v", t.run, err))
	}
	return append(faults, checkTrials(out, t)...)
}

func checkTrials(document []byte, t told) []string {
	var doc struct {
		Trials []struct {
			ID, Row, Grade string
			Metrics        map[string]float64
			Failure        *struct{ Phase, Error string }
		}
	}
	if err := json.Unmarshal(document, &doc); err != nil {
		return []string{fmt.Sprintf("show --json %s: %v", t.run, err)}
	}
	var faults []string
	ids, rows := map[string]bool{}, map[string]bool{}
	for _, trial := range doc.Trials {
		if ids[trial.ID] {
			faults = append(faults, "trial "+trial.ID+" is stored twice")
		}
		ids[trial.ID], rows[trial.Row] = true, true
		if trial.Grade == "failed" && (trial.Failure == nil || trial.Failure.Error == "") {
			faults = append(faults, "trial "+trial.ID+" failed without a reason")
		}
		if trial.Grade != "failed" && len(trial.Metrics) == 0 {
			faults = append(faults, "trial "+trial.ID+" has neither numbers nor a failure")
		}
	}
	for _, row := range t.finished {
		if !rows[row] {
			faults = append(faults, "the trial of row "+row+" was reported as finished and is not stored")
		}
	}
	// At most one trial more can be stored than was reported: the one whose
	// commit the blow fell upon.
	if len(doc.Trials) > len(t.finished)+1 {
		faults = append(faults, fmt.Sprintf("%d trials are stored, %d were reported as finished", len(doc.Trials), len(t.finished)))
	}
	return faults
}
