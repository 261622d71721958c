package main

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/bench/rig"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
)

// TestSearchFindsAPlantedKey writes a key in every way that could happen.
func TestSearchFindsAPlantedKey(t *testing.T) {
	key := make([]byte, 32)
	rand.Read(key)
	copy(key, mark)
	message, err := json.Marshal(map[string]any{"key": key, "list": []int{int(key[0])}})
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]string{
		"raw": "x" + string(key) + "y", "hex": "private_key=" + hex.EncodeToString(key) + "\n",
		"HEX":    fmt.Sprintf("%X", key),
		"base64": base64.StdEncoding.EncodeToString(key), "url": base64.URLEncoding.EncodeToString(key),
		"json":                 string(message),
		"base64 of a frame, 1": base64.StdEncoding.EncodeToString(append([]byte{1}, key...)),
		"base64 of a frame, 2": base64.StdEncoding.EncodeToString(append([]byte{1, 200}, key...)),
		"base64 of a frame, 3": base64.StdEncoding.EncodeToString(append([]byte{255, 255, 255}, key...)),
		"%v":                   fmt.Sprintf("%v", key), "%#v": fmt.Sprintf("%#v", key),
		"%q": fmt.Sprintf("%q", key),
	}
	for _, before := range []int{35, 36, 37} {
		block := &pem.Block{Type: "PRIVATE KEY", Bytes: append(make([]byte, before), key...)}
		tests[fmt.Sprintf("PEM after %d bytes", before)] = string(pem.EncodeToMemory(block))
	}
	for name, text := range tests {
		if got := search([]byte(text)); len(got) == 0 {
			t.Errorf("%s: got nothing in %q, want the planted key found", name, text)
		}
	}
	rand.Read(key)
	for name, text := range map[string]string{"another key": base64.StdEncoding.EncodeToString(key),
		"redacted": "[secret]"} {
		if got := search([]byte(text)); len(got) != 0 {
			t.Errorf("%s: got %v, want nothing", name, got)
		}
	}
}

func TestSearchFilesFindsALeak(t *testing.T) {
	p := &place{Program: rig.Program{Dir: t.TempDir()}}
	if err := os.MkdirAll(p.At("state/chokepoint"), 0o700); err != nil {
		t.Fatal(err)
	}
	if p.searchFiles(); len(p.found) != 0 {
		t.Fatalf("found: got %v in empty folders, want nothing", p.found)
	}
	leak := filepath.Join(p.At("state/chokepoint"), "journal")
	if err := os.WriteFile(leak, []byte("psk="+hex.EncodeToString([]byte(mark+"0123456789abcdef"))),
		0o600); err != nil {
		t.Fatal(err)
	}
	p.searchFiles()
	want := []string{"a key stands in hexadecimal in file state/chokepoint/journal"}
	if !slices.Equal(p.found, want) {
		t.Errorf("found: got %q, want %q", p.found, want)
	}
}

func TestLookAtProcessesFindsALeak(t *testing.T) {
	tests := []struct {
		name string
		args []string
		env  []string
		want string
	}{
		{"argument", []string{base64.StdEncoding.EncodeToString([]byte(mark + "0123456789abcdef"))}, nil,
			"in the cmdline"},
		{"environment", nil, []string{"PSK=" + hex.EncodeToString([]byte(mark+"0123456789abcdef"))},
			"in the environ"},
		{"neither", nil, nil, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			// A shell that waits: it keeps its arguments, whatever they mean.
			shell, err := filepath.EvalSymlinks("/bin/sh")
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(shell, append([]string{"-c", "read line; exit", "sh"}, tt.args...)...)
			cmd.Env = tt.env
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			p := &place{Program: rig.Program{Dir: t.TempDir(), Path: shell}, inMemory: true}
			p.lookAtProcesses()
			in.Close()
			_ = cmd.Wait() // its exit code means nothing here
			got := strings.Join(p.found, "; ")
			if p.looked == 0 || tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
				t.Errorf("found: got %q in %d places, want %q in it", got, p.looked, tt.want)
			}
		})
	}
}

func TestSearchStoreFindsALeak(t *testing.T) {
	key := []byte(mark + "0123456789abcdef")
	text := base64.StdEncoding.EncodeToString(key)
	tests := []struct {
		name  string
		run   record.Run
		trial record.Trial
		want  string
	}{
		{"clean", record.Run{}, record.Trial{}, ""},
		{"caveat of the run", record.Run{Caveats: []record.Caveat{{Kind: "k", Text: text}}}, record.Trial{},
			"in the store"},
		{"failure", record.Run{}, record.Trial{Failure: &record.Failure{Phase: "set-up", Error: "peer " +
			text}}, "in the store"},
		{"raw output", record.Run{}, record.Trial{Traffic: &record.Traffic{Raw: []byte("psk " + text)}},
			"in stored raw output"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := &place{Program: rig.Program{Dir: t.TempDir()}}
			s, err := store.Open(t.Context(), p.At("data/chokepoint/runs.db"))
			if err != nil {
				t.Fatal(err)
			}
			tt.run.ID, tt.trial.Run, tt.trial.ID = "r", "r", "b1-r01.1"
			err = s.CreateRun(t.Context(), tt.run)
			if err == nil {
				err = s.AppendTrial(t.Context(), tt.trial)
			}
			if err = errors.Join(err, s.Close()); err != nil {
				t.Fatal(err)
			}
			if err := p.searchStore(t.Context()); err != nil {
				t.Fatal(err)
			}
			got := strings.Join(p.found, "; ")
			if tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
				t.Errorf("found: got %q, want %q in it", got, tt.want)
			}
		})
	}
}

func TestMemoryHasFindsOwnSecret(t *testing.T) {
	secret := []byte(strings.Repeat("memory", 2) + fmt.Sprint(os.Getpid()))
	if !memoryHas("/proc/self", secret) {
		t.Error("memory of this process: got no trace of its secret, want one")
	}
	if memoryHas("/proc/0", secret) {
		t.Error("memory of no process: got a trace, want none")
	}
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
