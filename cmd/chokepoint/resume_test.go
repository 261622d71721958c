package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

func TestOtherBed(t *testing.T) {
	host := func(facts ...string) record.Run {
		r := record.Run{Lab: record.LabVM, Nodes: []record.NodeFacts{{Name: "router", Driven: "agent",
			CPUs: record.CPUsVirtual}}}
		e := record.Environment{Node: "host", Facts: map[string]string{"guest_memory_mb": "512",
			"cpu_threads": "4", "sysctl:net.ipv4.tcp_mem": "1 2 3", "os": "Linux", "kernel": "6.1",
			"governor": "performance"}}
		for _, f := range facts {
			name, value, _ := strings.Cut(f, "=")
			e.Facts[name] = value
		}
		r.Environments = []record.Environment{e}
		return r
	}
	queues, driven, accel := host(), host(), host()
	queues.Queues = 2
	driven.Driver, driven.Nodes[0].Driven = "linux", "linux"
	accel.Nodes[0].CPUs = record.CPUsEmulated
	tests := []struct {
		name string
		is   record.Run
		want []string
	}{
		{"the same", host(), nil},
		{"what varies by itself", host("sysctl:net.ipv4.tcp_mem=3 4 5", "memory_bytes=1"), nil},
		{"a smaller guest", host("guest_memory_mb=320"), []string{"guest_memory_mb of host was 512, is 320"}},
		{"another image", host("guest_image=stock"), []string{"guest_image of host was none, is stock"}},
		{"fewer cores", host("cpu_threads=2"), []string{"cpu_threads of host was 4, is 2"}},
		{"another kernel", host("kernel=6.2", "os=Other"), []string{"kernel of host was 6.1, is 6.2"}},
		{"another governor", host("governor=powersave"),
			[]string{"governor of host was performance, is powersave"}},
		{"queues", queues, []string{"queues of each virtual link was 1, is 2"}},
		{"a driver", driven, []string{"driver of the routers was none, is linux",
			"by what router is driven was agent, is linux"}},
		{"emulation", accel, []string{"what CPUs router has was virtual, is emulated"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			was := host()
			if got := otherBed(&was, &tt.is); !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// TestAnInterruptedRunSaysHowItGoesOn, whatever the signal made of the error.
func TestAnInterruptedRunSaysHowItGoesOn(t *testing.T) {
	const command = "chokepoint resume 20260102-030405-aaaa goes on with it"
	for _, err := range []error{ErrInterrupted, context.Canceled} {
		got := interruptedBy(errors.Join(check.WithHint(err, command), errors.New("other")))
		if h := hints(got); !slices.Contains(h, command) || exitCode(got) != codeInterrupted {
			t.Errorf("of %v: got hints %q and code %d, want the command and %d", err, h, exitCode(got),
				codeInterrupted)
		}
	}
}

// TestResumeFindsTheLatestRunThatWasCutShort.
func TestResumeFindsTheLatestRunThatWasCutShort(t *testing.T) {
	d := dirs{Data: t.TempDir() + "/chokepoint", State: t.TempDir()}
	ctx := context.Background()
	if _, err := lastCutShort(ctx, d); err == nil || len(hints(err)) == 0 {
		t.Errorf("without a run: got %v, want an error with a hint", err)
	}
	for _, name := range []string{"good", "killed", "before"} { // the newest has come to its end
		if err := writeSample(ctx, d.storeFile(), name); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := lastCutShort(ctx, d); err != nil || got != samples["killed"].id {
		t.Errorf("got %q, %v, want %s", got, err, samples["killed"].id)
	}
}
