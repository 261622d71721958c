package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/record/store"
)

// look searches one text and remembers where the mark was.
func (p *place) look(where string, data []byte) {
	p.looked++
	for _, form := range search(data) {
		line := fmt.Sprintf("a key stands %s in %s", form, where)
		if !slices.Contains(p.found, line) {
			p.found = append(p.found, line)
		}
	}
}

// try runs the planted program to its end, looks at everything it shows meanwhile, and returns its output.
func (p *place) try(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	said, err := p.watch(ctx, args)
	if err != nil {
		return said, fmt.Errorf("chokepoint %s: %v", strings.Join(args, " "), err)
	}
	return said, nil
}

// kill ends the planted program by SIGKILL in the middle of a run: some time after the nodes have a tunnel.
func (p *place) kill(ctx context.Context, args ...string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	armed := false
	p.meanwhile = func() {
		if !armed && p.tunnels() > 0 {
			armed = true
			time.AfterFunc(300*time.Millisecond, cancel)
		}
	}
	defer func() { p.meanwhile = nil }()
	_, err := p.watch(ctx, args)
	if !armed || ctx.Err() == nil {
		return fmt.Errorf("chokepoint %s: it ended before it could be killed: %v", strings.Join(args, " "),
			err)
	}
	p.searchFiles()
	return nil
}

// tunnels counts the processes that hold a tunnel's device.
func (p *place) tunnels() int {
	n := 0
	links, _ := filepath.Glob("/proc/[0-9]*/fd/*") // the pattern is well-formed
	for _, l := range links {
		if to, _ := os.Readlink(l); to != "/dev/net/tun" {
			continue
		}
		if exe, _ := os.Readlink(filepath.Join(l, "../../exe")); exe == p.Path {
			n++
		}
	}
	return n
}

func (p *place) watch(ctx context.Context, args []string) (string, error) {
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
				err = fmt.Errorf("%v\n%s", err, log.String())
			}
			return out.String(), err
		case <-time.After(20 * time.Millisecond):
			p.lookAtProcesses()
			p.searchFiles()
			if p.meanwhile != nil {
				p.meanwhile()
			}
		}
	}
}

// lookAtProcesses reads the arguments and environments of all processes of the planted program and of
// openvpn, which it starts; and, until the mark was found once, the memory of its own.
func (p *place) lookAtProcesses() {
	procs, _ := filepath.Glob("/proc/[0-9]*") // the pattern is well-formed
	for _, proc := range procs {
		exe, _ := os.Readlink(proc + "/exe")
		own := exe == p.Path || strings.HasPrefix(exe, "/memfd:")
		if !own && filepath.Base(exe) != "openvpn" {
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

// searchStore looks at what the store holds, unpacked.
func (p *place) searchStore(ctx context.Context) error {
	s, err := store.OpenReadOnly(ctx, filepath.Join(p.At("data"), "chokepoint", "runs.db"))
	if err != nil {
		return err
	}
	defer s.Close()
	heads, err := s.Runs(ctx)
	if err != nil {
		return err
	}
	if len(heads) == 0 {
		return errors.New("the store is empty")
	}
	for _, h := range heads {
		run, err := s.Find(ctx, h.ID)
		if err != nil {
			return err
		}
		trials, err := s.Trials(ctx, h.ID)
		if err != nil {
			return err
		}
		text, err := json.Marshal([]any{run, trials})
		if err != nil {
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
