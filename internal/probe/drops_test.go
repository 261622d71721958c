package probe

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// As Linux 6.1 spells them, with fewer reasons.
const (
	dropFormat = `name: kfree_skb
ID: 1422
format:
	field:unsigned short common_type;	offset:0;	size:2;	signed:0;

	field:void * skbaddr;	offset:8;	size:8;	signed:0;
	field:enum skb_drop_reason reason;	offset:28;	size:4;	signed:0;

print fmt: "skbaddr=%p protocol=%u location=%p reason: %s", REC->skbaddr, REC->protocol, REC->location, __print_symbolic(REC->reason, { 1, "NOT_SPECIFIED" }, { 2, "NO_SOCKET" }, { 8, "SKB_DROP_REASON_NETFILTER_DROP" })
`
	dropHist = `# event histogram
#
# trigger info: hist:keys=reason:vals=hitcount:sort=hitcount:size=512 [active]
#

{ reason:          8 } hitcount:          2
{ reason:         77 } hitcount:          5
{ reason:          2 } hitcount:         31

Totals:
    Hits: 38
    Entries: 3
    Dropped: 0
`
)

func TestParseDrops(t *testing.T) {
	got, err := parseDropFormat([]byte(dropFormat))
	want := []dropReason{{1, "NOT_SPECIFIED"}, {2, "NO_SOCKET"}, {8, "NETFILTER_DROP"}}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(dropReason{})); d != "" || err != nil {
		t.Errorf("reasons: error %v (-want +got):\n%s", err, d)
	}

	dst := []float64{0, 0, 0, 0}
	total, err := parseDropHist([]byte(dropHist), map[uint64]int{1: 1, 2: 2, 8: 3}, dst)
	if d := cmp.Diff([]float64{0, 0, 31, 2}, dst); d != "" || total != 38 || err != nil {
		t.Errorf("counts: got %v in all, error %v, (-want +got):\n%s", total, err, d)
	}
}

// A tracing instance is a directory; its files appear by themselves on a real machine. Those of processes
// that have ended are removed.
func TestDropsAreNotReadOnAMachineOfOthers(t *testing.T) {
	root := tree(t, map[string]string{"sys/kernel/tracing/events/skb/kfree_skb/format": dropFormat})
	left := root.sys("kernel/tracing/instances/chokepoint.999999999.1")
	if err := os.MkdirAll(left, 0o755); err != nil {
		t.Fatal(err)
	}

	if _, err := drops(root).Open(Options{}); !errors.Is(err, host.ErrUnsupported) {
		t.Errorf("on a machine that is not the lab's: got %v, want that it is not supported", err)
	}

	_, err := drops(root).Open(Options{Trace: true})
	if err == nil || strings.Contains(err.Error(), "switched") {
		t.Errorf("where an instance has no files: got %v, want an error about them", err)
	}

	names, err := filepath.Glob(root.sys("kernel/tracing/instances/*"))
	if err != nil || len(names) != 0 {
		t.Errorf("instances left: got %v, %v, want none", names, err)
	}
}
