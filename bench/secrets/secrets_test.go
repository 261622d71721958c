// Package secrets_test builds chokepoint with a random generator whose 32-byte draws, which is what keys are
// made of, begin with a known text; runs tunnels with it; and looks for that text, in every coding it might
// be written in, in all that the run prints, passes on a command line or in an environment, keeps in a file
// at any moment, or stores. That the text is found in the memory of the nodes' processes proves that the
// planted keys were in use. It does so again over ssh, whose private key it looks for as well. What it
// cannot see: a key in another coding than those it knows, and one that leaves only on a path that these runs
// do not take. Needs to be root, to read the memory of others.
//
//	go -C bench test ./secrets -planted
package secrets_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/bench/rig"
)

var planted = flag.Bool("planted", false, "build the program with planted keys, and search for them")

// plan lays every kind of tunnel that can be had here, with and without load from outside, and settings for
// the journal; it is short, since keys are made at set-up. The userspace tunnel keeps its keys where they
// can be found, and OpenVPN is given a private key by us.
const plan = `name: secrets
method: {duration: 500ms, warmup: 100ms, cooldown: 0, idle: 200ms, runs: 1}
matrix:
  tunnel: [none, wireguard-userspace, wireguard-kernel, openvpn]
  streams: [2]
  queue@router.wan: [pfifo limit 500]
`

func TestSecrets(t *testing.T) {
	if !*planted {
		t.Skip("skip: secrets builds a program with planted keys: -planted does")
	}

	ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	program, err := rig.Folders(t.TempDir(), os.Geteuid())
	p := &place{Program: program, begun: time.Now()}
	if err := errors.Join(err, os.WriteFile(p.At("secrets.yaml"), []byte(plan), 0o600)); err != nil {
		t.Fatal(err)
	}

	build(t, p.Path)
	defer func() {
		for _, found := range p.found {
			t.Error(found)
		}
	}()
	p.takeEveryPath(t, ctx)
	p.inUse(t)
	p.reachMachines(t, ctx)
	if err := p.searchStore(ctx); err != nil {
		t.Error(err)
	}

	p.searchFiles()
	fmt.Fprintf(t.Output(), "note: planted keys were in use, and in none of %d places searched but "+
		"memory: %t\n", p.looked, len(p.found) == 0)
}

// inUse makes sure that the planted keys were.
func (p *place) inUse(t *testing.T) {
	t.Helper()
	if !p.inMemory {
		t.Fatal("the planted text was in no process's memory: the keys were others, and this proves nothing")
	}
}

// takeEveryPath runs what lays tunnels, on a lab of its own, on one that was there before, and until it is
// killed, and then all that shows what was kept.
func (p *place) takeEveryPath(t *testing.T, ctx context.Context) {
	try := func(args ...string) string {
		said, err := p.watch(ctx, nil, args...)
		if err != nil {
			t.Fatal(err)
		}
		return said
	}
	plan := p.At("secrets.yaml")
	try("run", plan, "--json", "--output", p.At("report.html"))
	var lab struct{ ID string }
	if err := json.Unmarshal([]byte(try("lab", "up", "--json")), &lab); err != nil {
		t.Fatalf("lab up: %v", err)
	}

	func() {
		defer try("lab", "down", lab.ID)
		try("run", plan, "--attach", lab.ID)
	}()
	p.kill(t, ctx, "run", plan)
	for _, args := range [][]string{
		{"lab", "restore", "--json"}, {"show", "latest"}, {"show", "--json", "latest"}, {"list", "--json"},
		{"report", "latest", "--format", "md"}, {"report", "latest", "--format", "csv"},
		{"report", "latest", "--format", "json"},
		{"doctor"},
	} {
		try(args...)
	}
}

// build makes the program and its agent with the planted generator. The overlay replaces one file of the
// standard library in these builds alone.
func build(t *testing.T, program string) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatalf("find the standard library: %v", err)
	}

	original := filepath.Join(strings.TrimSpace(string(root)), "src/crypto/internal/fips140/drbg/rand.go")
	text, err := os.ReadFile(original)
	if err != nil {
		t.Fatal(err)
	}

	source, err := plant(string(text))
	if err != nil {
		t.Fatalf("plant in %s: %v", original, err)
	}

	dir := t.TempDir()
	changed := filepath.Join(dir, "rand.go")
	overlay := filepath.Join(dir, "overlay.json")
	if err := errors.Join(os.WriteFile(changed, []byte(source), 0o600),
		os.WriteFile(overlay, fmt.Appendf(nil, "{%q: {%q: %q}}", "Replace", original, changed), 0o600),
		rig.Build(program, "cmd/chokepoint", "-overlay", overlay),
		rig.Build(program+"-agent", "cmd/chokepoint-agent", "-overlay", overlay)); err != nil {
		t.Fatal(err)
	}
}

// plant changes the source of the generator so that every draw of 32 bytes begins with the mark.
func plant(source string) (string, error) {
	const draw = "\t\tsysrand.Read(b)\n"
	if strings.Count(source, draw) != 1 {
		return "", errors.New("this Go release draws its random bytes elsewhere")
	}
	return strings.Replace(source, draw, draw+"\t\tif len(b) == 32 {\n\t\t\tcopy(b, \""+mark+"\")\n\t\t}\n",
		1), nil
}

func TestPlantFitsThisGoRelease(t *testing.T) {
	if _, err := plant("package drbg\n"); err == nil {
		t.Error("plant in a foreign file: got nil, want an error")
	}

	got, err := plant("func Read(b []byte) {\n\t\tsysrand.Read(b)\n\t\treturn\n}")
	if err != nil || !strings.Contains(got, mark) {
		t.Errorf("planted source: got %q and %v, want the mark in it", got, err)
	}
}
