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
			"cpu_threads": "4", "sysctl:net.ipv4.tcp_mem": "1 2 3"}}
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
	path := func(peer string, facts ...string) record.Run {
		r := host()
		e := record.Environment{Node: "router", Facts: map[string]string{}}
		for _, f := range facts {
			name, value, _ := strings.Cut(f, "=")
			e.Facts["path_ipv4:"+name] = value
		}
		r.Peer, r.Environments = peer, []record.Environment{e}
		return r
	}
	tests := []struct {
		name string
		is   record.Run
		want []string
	}{
		{"the same", host(), nil},
		{"what varies by itself", host("sysctl:net.ipv4.tcp_mem=3 4 5", "memory_bytes=1",
			"clocksource=tsc"), nil},
		{"a smaller guest", host("guest_memory_mb=320"), []string{"guest_memory_mb of host was 512, is 320"}},
		{"another image", host("guest_image=stock"), []string{"guest_image of host was none, is stock"}},
		{"fewer cores", host("cpu_threads=2"), []string{"cpu_threads of host was 4, is 2"}},
		{"queues", queues, []string{"queues of each virtual link was 1, is 2"}},
		{"a driver", driven, []string{"driver of the routers was none, is linux",
			"by what router is driven was agent, is linux"}},
		{"the same path", path("192.0.2.7:20100", "near=10.0.0.1", "far=192.0.2.7", "nat=near", "mtu=1500",
			"route=10.0.0.2", "udp_opened_by=far"), nil},
		{"translation untold", path("192.0.2.7:20100", "near=10.0.0.1", "far=192.0.2.7", "mtu=1500",
			"route=10.0.0.2"), nil},
		{"another peer", path("192.0.2.8", "near=10.0.0.3", "far=192.0.2.8", "nat=none", "mtu=1492"),
			[]string{"peer was 192.0.2.7:20100, is 192.0.2.8:20100",
				"path_ipv4:far of router was 192.0.2.7, is 192.0.2.8",
				"path_ipv4:mtu of router was 1500, is 1492", "path_ipv4:nat of router was near, is none",
				"path_ipv4:near of router was 10.0.0.1, is 10.0.0.3",
				"path_ipv4:route of router was 10.0.0.2, is none"}},
		{"emulation", accel, []string{"what CPUs router has was virtual, is emulated"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			was := host()
			if tt.is.Peer != "" {
				was = path("192.0.2.7", "near=10.0.0.1", "far=192.0.2.7", "nat=near", "mtu=1500",
					"route=10.0.0.2", "udp_opened_by=near")
			}
			if got := otherBed(&was, &tt.is); !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestOtherPeerVersion(t *testing.T) {
	const a, b = "v1 go1.26.8 linux/amd64", "v2 go1.26.8 linux/amd64"
	of := func(theirs string) *record.Run {
		return &record.Run{Caveats: []record.Caveat{{Kind: peerVersion, Text: versionText + theirs +
			", this is v3 go1.26.8 linux/amd64"}}}
	}
	for _, tt := range []struct {
		was  *record.Run
		is   string
		want []string
	}{
		{&record.Run{}, "", nil},
		{of(a), a, nil},
		{of(a), "v1 go1.26.8 linux/arm64", nil},
		{of(a), b, []string{"version of the peer was " + a + ", is " + b}},
		{of(a), "", []string{"version of the peer was " + a + ", is ours"}},
		{&record.Run{}, b, []string{"version of the peer was ours, is " + b}},
	} {
		if got := otherPeerVersion(tt.was, tt.is); !slices.Equal(got, tt.want) {
			t.Errorf("%v, then %q: got %q, want %q", tt.was.Caveats, tt.is, got, tt.want)
		}
	}
}

// TestWhoElseIsThere: a journal's owner is a run, or another command that makes labs.
func TestWhoElseIsThere(t *testing.T) {
	for id, want := range map[string]string{"20260102-030405-aaaa": "run 20260102-030405-aaaa",
		"doctor-20260102-030405-aaaa": "another chokepoint (doctor-20260102-030405-aaaa)"} {
		if got := owner(id); got != want {
			t.Errorf("owner %s: got %q, want %q", id, got, want)
		}
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
