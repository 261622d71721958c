package secrets_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/bench/rig"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
)

// place holds where a planted program works and what it left there.
type place struct {
	rig.Program
	found    []string
	inMemory bool
	looked   int               // places that were searched
	others   map[string]string // what else must stand nowhere: what it is, and a part of it
	begun    time.Time
}

// look searches one text and remembers where the mark was.
func (p *place) look(where string, data []byte) {
	p.looked++
	for _, form := range search(data) {
		line := fmt.Sprintf("a key stands %s in %s", form, where)
		if !slices.Contains(p.found, line) {
			p.found = append(p.found, line)
		}
	}

	for what, part := range p.others {
		line := fmt.Sprintf("%s stands in %s", what, where)
		if bytes.Contains(data, []byte(part)) && !slices.Contains(p.found, line) {
			p.found = append(p.found, line)
		}
	}
}

// kill ends the planted program by SIGKILL in the middle of a run: some time after the nodes have a tunnel.
func (p *place) kill(t *testing.T, ctx context.Context, args ...string) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	armed := false
	_, err := p.watch(ctx, func() {
		if !armed && p.tunnels() > 0 {
			armed = true
			time.AfterFunc(300*time.Millisecond, cancel)
		}
	}, args...)
	if !armed || ctx.Err() == nil {
		t.Fatalf("it ended before it could be killed: %v", err)
	}

	p.searchFiles()
}

// tunnels counts the processes that hold a tunnel's device.
func (p *place) tunnels() int {
	n := 0
	links, _ := filepath.Glob("/proc/[0-9]*/fd/*") // the pattern is well-formed
	for _, l := range links {
		to, _ := os.Readlink(l)
		if to != "/dev/net/tun" {
			continue
		}

		exe, _ := os.Readlink(filepath.Join(l, "../../exe"))
		if exe == p.Path {
			n++
		}
	}

	return n
}

// watch runs the planted program to its end, looks at everything it shows meanwhile, and returns its output.
func (p *place) watch(ctx context.Context, meanwhile func(), args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	cmd := p.Command(ctx, args...)
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	if err := cmd.Start(); err != nil {
		return "", err
	}

	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for {
		select {
		case err := <-done:
			name := strings.Join(args, " ")
			p.look("the output of "+name, out.Bytes())
			p.look("the messages of "+name, log.Bytes())
			if err != nil {
				err = fmt.Errorf("chokepoint %s: %v\n%s", name, err, log.String())
			}

			return out.String(), err
		case <-time.After(20 * time.Millisecond):
			p.lookAtProcesses()
			p.searchFiles()
			if meanwhile != nil {
				meanwhile()
			}
		}
	}
}

// lookAtProcesses reads the arguments and environments of all processes of the planted program, also where it
// is the agent of a machine, and of openvpn and ssh, which it starts; and, until the mark was found once, the
// memory of its own.
func (p *place) lookAtProcesses() {
	procs, _ := filepath.Glob("/proc/[0-9]*") // the pattern is well-formed
	for _, proc := range procs {
		exe, _ := os.Readlink(proc + "/exe")
		own := exe == p.Path || strings.HasPrefix(exe, "/memfd:") || strings.Contains(exe, "/chokepoint-")
		if !own && !slices.Contains([]string{"openvpn", "ssh", "sshd"}, filepath.Base(exe)) {
			continue
		}

		for _, part := range []string{"cmdline", "environ"} {
			// A process that is gone in the meantime shows nothing.
			if data, err := os.ReadFile(proc + "/" + part); err == nil {
				p.look("the "+part+" of a process", data)
			}
		}

		if own && !p.inMemory {
			p.inMemory = memoryHas(proc, []byte(mark))
		}
	}
}

// memoryHas searches the anonymous, writable memory of a process. The mark itself also stands in the
// program's text, which is not writable.
func memoryHas(proc string, what []byte) bool {
	maps, err := os.ReadFile(proc + "/maps")
	if err != nil {
		return false
	}

	mem, err := os.Open(proc + "/mem")
	if err != nil {
		return false
	}
	defer mem.Close()
	for _, line := range strings.Split(string(maps), "\n") {
		fields := strings.Fields(line)
		if len(fields) < 5 || !strings.HasPrefix(fields[1], "rw") || fields[4] != "0" {
			continue
		}

		low, high, _ := strings.Cut(fields[0], "-")
		from, err1 := strconv.ParseInt(low, 16, 64)
		to, err2 := strconv.ParseInt(high, 16, 64)
		if err1 != nil || err2 != nil || to-from > 256<<20 {
			continue
		}

		data, _ := io.ReadAll(io.NewSectionReader(mem, from, to-from)) // what can be read counts
		if bytes.Contains(data, what) {
			return true
		}
	}

	return false
}

// searchFiles looks into every file under the program's folders, at this moment.
func (p *place) searchFiles() {
	for _, d := range []string{"home", "data", "state", "run", "tmp", "config", "report.html"} {
		_ = filepath.WalkDir(p.At(d), func(path string, e fs.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() {
				return nil // gone, or a socket
			}

			if data, err := os.ReadFile(path); err == nil {
				p.look("file "+strings.TrimPrefix(path, p.Dir+"/"), data)
			}
			return nil
		})
	}
}

// searchShared looks into every small file that has been written since we began where all users of a machine
// may, but for those of tests, and programs and what they are built of, which hold the mark themselves.
func (p *place) searchShared() {
	const most = 4 << 20
	for _, top := range []string{"/tmp", "/var/tmp", "/dev/shm", "/run"} {
		_ = filepath.WalkDir(top, func(path string, e fs.DirEntry, err error) error {
			if err != nil {
				return nil // gone, or not ours to see
			}

			if e.IsDir() && (strings.HasPrefix(e.Name(), "Test") || strings.HasPrefix(e.Name(), "go-build")) {
				return fs.SkipDir
			}

			i, err := e.Info()
			if err != nil || !i.Mode().IsRegular() || i.Size() > most || i.ModTime().Before(p.begun) {
				return nil
			}

			data, err := os.ReadFile(path)
			program := bytes.HasPrefix(data, []byte("\x7fELF")) || bytes.HasPrefix(data, []byte("!<arch>\n"))
			if err == nil && !program {
				p.look("file "+path, data)
			}

			return nil
		})
	}
}

// searchStore looks at what the store holds, unpacked.
func (p *place) searchStore(ctx context.Context) error {
	s, err := store.OpenReadOnly(ctx, filepath.Join(p.At("data"), "chokepoint", "runs.db"))
	if err != nil {
		return err
	}
	defer s.Close()
	heads, err := s.Runs(ctx)
	if len(heads) == 0 {
		return errors.Join(err, errors.New("the store is empty"))
	}

	for _, h := range heads {
		run, err := s.Find(ctx, h.ID)
		trials, err2 := s.Trials(ctx, h.ID)
		text, err3 := json.Marshal([]any{run, trials})
		if err := errors.Join(err, err2, err3); err != nil {
			return err
		}

		p.look("the store", text)
		for _, t := range trials {
			if t.Traffic != nil {
				p.look("stored raw output", t.Traffic.Raw) // base64 above
			}
		}
	}

	return nil
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

			cmd := exec.Command(shell, append([]string{"-c", "echo; read line; exit", "sh"}, tt.args...)...)
			cmd.Env = tt.env
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}

			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}

			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}

			// Start may return before the kernel has set up the stack, which holds the environment.
			if _, err := out.Read(make([]byte, 1)); err != nil {
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
		{"failure", record.Run{}, record.Trial{TrialHead: record.TrialHead{
			Failure: &record.Failure{
				Phase: "set-up",
				Error: "peer " +
					text,
			},
		}}, "in the store"},
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

			tt.run.ID = "r"
			tt.trial.Run = "r"
			tt.trial.ID = "b1-r01.1"
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
