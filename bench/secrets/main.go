// Program secrets builds chokepoint with a random generator whose 32-byte draws, which is what keys are
// made of, begin with a known text; runs tunnels with it; and looks for that text, in every coding it might
// be written in, in all that the run prints, passes on a command line or in an environment, keeps in a file
// at any moment, or stores. That the text is found in the memory of the nodes' processes proves that the
// planted keys were in use. What it cannot see: a key in another coding than those it knows, and one that
// leaves only on a path that these runs do not take. Needs to be root, to read the memory of others.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/chokepoint-lab/chokepoint/bench/rig"
)

func main() { os.Exit(rig.Main("secrets", run)) }

func run(ctx context.Context, args []string, out, log io.Writer) error {
	flags := flag.NewFlagSet("secrets", flag.ContinueOnError)
	if err := rig.Parse(flags, args, log, func() bool { return true }); err != nil {
		return err
	}
	found, err := hunt(ctx, out)
	for _, f := range found {
		fmt.Fprintln(out, "fail:", f)
	}
	if err == nil && len(found) > 0 {
		err = rig.ErrFailed
	}
	return err
}

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

// place is where a planted program works and what it left there.
type place struct {
	rig.Program
	found     []string
	inMemory  bool
	looked    int    // places that were searched
	meanwhile func() // done again and again beside a run
}

func hunt(ctx context.Context, out io.Writer) ([]string, error) {
	dir, err := os.MkdirTemp("", "chokepoint-secrets-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	p := &place{}
	if p.Program, err = rig.Folders(dir, os.Geteuid()); err != nil {
		return nil, err
	}
	if err := build(ctx, p.Path); err != nil {
		return nil, err
	}
	planFile := filepath.Join(dir, "secrets.yaml")
	if err := os.WriteFile(planFile, []byte(plan), 0o600); err != nil {
		return nil, err
	}
	if err := p.takeEveryPath(ctx, planFile); err != nil {
		return p.found, err
	}
	if err := p.searchStore(ctx); err != nil {
		return p.found, err
	}
	p.searchFiles()
	if !p.inMemory {
		return p.found, errors.New("the planted text was in no process's memory: the keys were others, and " +
			"this proves nothing")
	}
	fmt.Fprintf(out, "note: planted keys were in use, and in none of %d places searched but memory: %t\n",
		p.looked, len(p.found) == 0)
	return p.found, nil
}

// takeEveryPath runs what lays tunnels, on a lab of its own, on one that was there before, and until it is
// killed, and then all that shows what was kept.
func (p *place) takeEveryPath(ctx context.Context, planFile string) error {
	if _, err := p.try(ctx, "run", planFile, "--json", "--report", p.At("report.html")); err != nil {
		return err
	}
	said, err := p.try(ctx, "lab", "up", "--json")
	if err != nil {
		return err
	}
	var lab struct{ ID string }
	if err := json.Unmarshal([]byte(said), &lab); err != nil {
		return fmt.Errorf("lab up: %v", err)
	}
	_, err = p.try(ctx, "run", planFile, "--attach", lab.ID)
	if _, downErr := p.try(ctx, "lab", "down", lab.ID); err != nil || downErr != nil {
		return errors.Join(err, downErr)
	}
	if err := p.kill(ctx, "run", planFile); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"lab", "restore", "--json"}, {"show", "latest"}, {"show", "--json", "latest"}, {"list", "--json"},
		{"report", "latest", "--format", "md"}, {"report", "latest", "--format", "csv"},
		{"report", "latest", "--format", "json"},
		{"doctor"},
	} {
		if _, err := p.try(ctx, args...); err != nil {
			return err
		}
	}
	return nil
}

// build makes the program with the planted generator. The overlay replaces one file of the standard library
// in this build alone.
func build(ctx context.Context, program string) error {
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return fmt.Errorf("find the standard library: %v", err)
	}
	original := filepath.Join(strings.TrimSpace(string(root)), "src/crypto/internal/fips140/drbg/rand.go")
	text, err := os.ReadFile(original)
	if err != nil {
		return err
	}
	planted, err := plant(string(text))
	if err != nil {
		return fmt.Errorf("plant in %s: %v", original, err)
	}
	dir := filepath.Dir(program)
	changed, overlay := filepath.Join(dir, "rand.go"), filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(changed, []byte(planted), 0o600); err != nil {
		return err
	}
	if err := os.WriteFile(overlay, fmt.Appendf(nil, "{%q: {%q: %q}}", "Replace", original, changed),
		0o600); err != nil {
		return err
	}
	return rig.Build(program, "./cmd/chokepoint", "-overlay", overlay)
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
