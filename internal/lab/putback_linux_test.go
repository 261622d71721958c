package lab

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/lab/driver"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/journal"
	"github.com/chokepoint-lab/chokepoint/internal/lab/knob"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/apart"
	"github.com/chokepoint-lab/chokepoint/internal/labtest/expect"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// TestPutBackCompares: only what is still as a run made it is put back on a machine, what is as before is
// said to be, and what somebody has changed since is left and named, device by device.
func TestPutBackCompares(t *testing.T) {
	apart.Needs(t, "ip", "tc")
	const ours, others = "pfifo limit 50", "pfifo limit 77"
	states := []struct{ wan, lan, wantWAN, wantLAN, text, err string }{
		{ours, ours, "", "", "put back queue=noqueue on router (local)", ""},
		{"", "", "", "", "already as before: queue=noqueue on router (local)", ""},
		{ours, "", "", "", "put back queue=noqueue of lo on router (local)", ""},
		{ours, others, "", others, "put back queue=noqueue of lo on router (local)", "queue of d0 is pfifo limit 77, was noqueue before the run, which made " +
			"it pfifo limit 50: somebody has changed it since, and it was left as it is; by hand: " +
			"tc qdisc replace dev d0 root noqueue"},
		// Of a change before it, which is looked at next.
		{"pfifo limit 60", "", "pfifo limit 60", "", "", ""},
	}
	for _, by := range []string{"", "linux"} {
		apart.Network(t, func(ctx context.Context) error {
			h := host.Local()
			if _, err := host.Run(ctx, h, host.Command{
				Path: "ip",
				Args: strings.Fields("link add d0 type veth peer name d1"),
			}); err != nil {
				return err
			}

			n := &Node{Name: "router", Host: h, Driver: driver.Linux{}}
			if by == "" {
				own, err := ownAgent("")
				if err != nil {
					return err
				}
				defer own.Close()
				n = &Node{Name: "router", Agent: own}
			}

			n.Facts.CPUs = "own"
			o := reached(t, n)
			o.of.Entries = append(o.of.Entries, journal.Entry{
				Seq:    2,
				Kind:   journal.KindSetting,
				Lab:    "a",
				Node:   "router",
				Knob:   "queue",
				Before: "noqueue",
				After:  "pfifo limit 60",
			})
			for _, tt := range states {
				err := errors.Join(setQueue(ctx, h, "lo", tt.wan), setQueue(ctx, h, "d0", tt.lan))
				if err != nil {
					return err
				}

				text, err := o.putBack(ctx, journal.Entry{
					Seq:    3,
					Kind:   journal.KindSetting,
					Lab:    "a",
					Node:   "router",
					Driver: by,
					Knob:   "queue",
					Before: "noqueue",
					After:  ours,
					Place:  []byte(`{"node":"router","ports":["lo","d0"],"wan":"lo"}`),
				})
				if tt.text != "" && text != tt.text || tt.err == "" && err != nil || tt.err != "" &&
					(!errors.Is(err, errOthers) || !strings.HasSuffix(withoutHandles(err), tt.err)) {
					t.Errorf("by %q, %q, %q: got %q, %v, want %q, %q", by, tt.wan, tt.lan, text, err,
						tt.text, tt.err)
				}

				for dev, want := range map[string]string{"lo": tt.wantWAN, "d0": tt.wantLAN} {
					out, err := host.Run(ctx, h, host.Command{
						Path: "tc",
						Args: []string{"qdisc", "show", "dev", dev},
					})
					_, limit, limited := strings.Cut(string(out), "limit ")
					if err != nil || limited != (want != "") ||
						!strings.HasPrefix(limit, strings.TrimPrefix(want, "pfifo limit ")) {
						t.Errorf("by %q, %q, %q: afterwards %s has %s, %v, want %q", by, tt.wan, tt.lan, dev,
							out, err, want)
					}
				}
			}

			return nil
		})
	}
}

// withoutHandles is an error's text without the handles that the kernel has chosen for queues.
func withoutHandles(err error) string {
	return regexp.MustCompile(`handle [0-9a-f]+: `).ReplaceAllString(err.Error(), "")
}

// readOnly is a router that has these queues, and takes no others.
type readOnly struct {
	driver.Linux
	queues map[string]string
}

func (r readOnly) Free(context.Context, host.Host, ...string) error { return nil }

func (r readOnly) Read(_ context.Context, _ host.Host, s record.Setting) (string, error) {
	return r.queues[s.Port], nil
}

func (r readOnly) Apply(_ context.Context, _ host.Host, s record.Setting) error {
	if s.Port == "lo" {
		return errors.New("read-only")
	}

	r.queues[s.Port] = s.Value
	return nil
}

// TestPutBackTellsWhatFailed from what others have changed, where it meets both: it is not theirs alone.
func TestPutBackTellsWhatFailed(t *testing.T) {
	const ours = "pfifo limit 50"
	n := &Node{
		Name: "router",
		Host: host.Local(),
		Driver: readOnly{queues: map[string]string{"lo": ours,
			"d0": ours, "d1": "pfifo limit 77"}},
	}
	n.Facts.CPUs = record.CPUsOwn
	text, err := reached(t, n).putBack(t.Context(), journal.Entry{
		Seq:    2,
		Kind:   journal.KindSetting,
		Lab:    "a",
		Node:   "router",
		Driver: "linux",
		Knob:   "queue",
		Before: "noqueue",
		After:  ours,
		Place:  []byte(`{"node":"router","ports":["lo","d0","d1"],"wan":"lo"}`),
	})
	want := "put back queue=noqueue of d0 on router (local)"
	if text != want {
		t.Errorf("got %q, want %q", text, want)
	}

	if err == nil || errors.Is(err, errOthers) || !strings.Contains(err.Error(), "read-only") ||
		!strings.Contains(err.Error(), "queue of d1 is pfifo limit 77") {
		t.Errorf("got %v, want that one is read-only, and what another is", err)
	}
}

// setQueue sets the queue of a device by tc, "" the one that it has by itself.
func setQueue(ctx context.Context, h host.Host, dev, queue string) error {
	_, err := host.Run(ctx, h, host.Command{
		Path: "sh",
		Args: append([]string{"-c",
			`tc qdisc del dev "$0" root 2>/dev/null; [ $# = 0 ] || tc qdisc replace dev "$0" root "$@"`, dev},
			strings.Fields(queue)...),
	})
	return err
}

// TestByHandIsQuoted: a command to paste holds what a journal says as words, whatever that is.
func TestByHandIsQuoted(t *testing.T) {
	for knobName, want := range map[string]string{
		"link_mtu":   `ip link set dev 'eth0; reboot' mtu '$(id)'`,
		"txqueuelen": `ip link set dev 'eth0; reboot' txqueuelen '$(id)'`,
		"queue":      `tc qdisc replace dev 'eth0; reboot' root '$(id)'`,
	} {
		k, _ := knobNamed(knob.All(), knobName)
		b := leftover{site: site{k: k}}
		expect.Same(t, knobName, want, b.byHand("eth0; reboot", "$(id)"))
	}
}
