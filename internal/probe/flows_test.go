package probe

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/lab/kernel"
)

// flowDump is an answer of ctnetlink with one entry for each status.
func flowDump(status ...uint32) []byte {
	var b []byte
	for _, s := range status {
		body := append(make([]byte, nfHeader), attr(1|0x8000, []byte{1, 2, 3, 4})...)
		body = append(body, attr(ctaStatus, binary.BigEndian.AppendUint32(nil, s))...)
		b = append(b, message(newFlow, body)...)
	}
	return append(b, message(nlmsgDone, make([]byte, 4))...)
}

func TestParseFlows(t *testing.T) {
	const confirmed = 1 << 3
	got := flowCount{tracked: 1}
	done, err := kernel.EachMessage(flowDump(confirmed, confirmed|statusOffload,
		confirmed|statusOffload|statusHW), got.take)
	want := (flowCount{4, 2, 1})
	if got != want || !done || err != nil {
		t.Errorf("got %+v, done %v, error %v, want %+v", got, done, err, want)
	}
}

// TestNoFlowTables: only a kernel that would show their setting says by its absence that it has none.
func TestNoFlowTables(t *testing.T) {
	for _, tt := range []struct {
		release string
		setting bool
		want    bool
	}{
		{"6.18.44-v1", false, true}, {"6.1.0-56-cloud-amd64", true, false}, {"5.14.0", false, true}, {"5.13.19", false, false},
		{"5.10.176", false, false}, {"4.19.1", false, false}, {"", false, false},
	} {
		root := Root{Proc: t.TempDir()}
		settings := filepath.Join(root.Proc, "sys/net/netfilter")
		err := errors.Join(os.MkdirAll(settings, 0o755),
			os.MkdirAll(filepath.Join(root.Proc, "sys/kernel"), 0o755),
			os.WriteFile(filepath.Join(root.Proc, "sys/kernel/osrelease"), []byte(tt.release+"\n"), 0o644))
		if tt.setting {
			file := filepath.Join(settings, "nf_flowtable_tcp_timeout")
			err = errors.Join(err, os.WriteFile(file, nil, 0o644))
		}

		if err != nil {
			t.Fatal(err)
		}

		got := noFlowTables(root)
		if got != tt.want {
			t.Errorf("Linux %q, setting %v: got %v, want %v", tt.release, tt.setting, got, tt.want)
		}
	}
}
