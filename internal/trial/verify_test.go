package trial

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/agent"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// TestSettledWaitsForTheLastPackets: counters are taken once they rest but for what the looks themselves
// move, and as they are where they never do.
func TestSettledWaitsForTheLastPackets(t *testing.T) {
	for name, tt := range map[string]struct{ moving, least, most int }{
		"a slow router":  {moving: 5, least: 7, most: 7}, // one look more tells that they rest
		"at once":        {moving: 0, least: 2, most: 2},
		"a busy network": {moving: 1e6, least: 3, most: 1e6},
	} {
		looks := 0
		packets := uint64(0)
		began := time.Now()
		got, err := settled(t.Context(), func() ([]record.CounterDelta, error) {
			if looks++; looks <= 1+tt.moving && looks > 1 {
				packets += 100
			} else {
				packets += fewPackets
			}
			return []record.CounterDelta{{Counter: "rx_packets", After: packets},
				{Counter: "rx_bytes", After: packets * 1500}}, nil
		})
		if err != nil || got[0].After != packets || looks < tt.least || looks > tt.most {
			t.Errorf("%s: got %v after %d looks, %v; want %d packets after %d to %d looks", name, got, looks,
				err, packets, tt.least, tt.most)
		}

		if took := time.Since(began); took > countTime+5*time.Second {
			t.Errorf("%s: it took %v, want %v at most", name, took, countTime)
		}
	}
}

// TestEndEchoDoesNotWaitForASilentNode: the node neither ends the echo nor says anything more.
func TestEndEchoDoesNotWaitForASilentNode(t *testing.T) {
	t.Parallel()
	near, far := net.Pipe()
	silent := func(ctx context.Context, s host.Session) error {
		if err := s.Recv(nil); err != nil {
			return err
		}

		<-ctx.Done()
		return nil
	}
	served := make(chan error, 1)
	go func() {
		served <- host.Serve(context.Background(), far, map[string]host.Handler{agent.VerbEcho: silent})
	}()
	a := host.Connect(near)
	s, err := a.Open(context.Background(), agent.VerbEcho, agent.EchoAt{})
	if err != nil {
		t.Fatal(err)
	}

	ended := make(chan struct{})
	go func() {
		endEcho(s)
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(echoEnd + 3*time.Second):
		t.Error("the echo's end is still waited for")
	}

	a.Close()
	if err := <-served; err != nil {
		t.Errorf("node: %v", err)
	}
}

// TestCountersOfTheWindow: what was read in time begins there, and the counters of the load stay; what was
// read late tells nothing of the window, above all where the load has no warm-up.
func TestCountersOfTheWindow(t *testing.T) {
	load := []record.CounterDelta{{Node: "router", Counter: "rx_bytes", Before: 10, After: 100, When: "load"},
		{Node: "agentless", Counter: "rx_bytes", Before: 10, After: 100, When: "load"}}
	warm := record.Window{Begin: 0, Start: 1000, End: 2000}
	cold := record.Window{Begin: 1000, Start: 1000, End: 2000}
	for name, tt := range map[string]struct {
		window record.Window
		at     int64
		err    error
		want   []record.CounterDelta
	}{
		"in time": {warm, 950, nil, []record.CounterDelta{{
			Node:    "router",
			Counter: "rx_bytes",
			Before:  40,
			After:   100,
			When:    "window",
		}}},
		"a little late": {warm, 1200, nil, []record.CounterDelta{{
			Node:    "router",
			Counter: "rx_bytes",
			Before:  40,
			After:   100,
			When:    "window",
		}}},
		"late":                   {warm, 1201, nil, nil},
		"late without a warm-up": {cold, 1001, nil, nil},
		"could not be read":      {warm, 950, context.Canceled, nil},
	} {
		e := edge{
			counters: []record.CounterDelta{{Node: "router", Counter: "rx_bytes", Before: 40}},
			at:       tt.at,
			err:      tt.err,
		}
		diff := cmp.Diff(tt.want, e.ofWindow(load, tt.window))
		if diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestBlamesTheSmallMTU: where large packets do not come back, a device on the path with a smaller MTU is
// named, unless the cell has set its MTU since it was found.
func TestBlamesTheSmallMTU(t *testing.T) {
	_, err := foundMTU(agent.Reached{Back: []int{100}, Note: "timeout"}, 1500)
	path := record.Topology{Near: "client", Far: "server", Routers: []string{"router"}}
	small := "; wan of router has an MTU of 600"
	for _, tt := range []struct {
		node string
		mtu  int
		set  string
		want string
	}{
		{"router", 1500, "", ""},
		{"router", 600, "", small},
		{"router", 600, "link_mtu@router.lan", small},
		{"router", 600, "link_mtu@router.wan", ""},
		{"router", 600, "link_mtu@router", ""},
		{"router", 600, "link_mtu", ""},
		{"printer", 600, "", ""},
	} {
		device := record.NetDevice{Name: "wan", Port: "wan", MTU: tt.mtu}
		mtu, got := blameMTU(err, []record.Environment{{Node: "client"}, {
			Node:      tt.node,
			Inventory: &record.Inventory{Devices: []record.NetDevice{device}},
		}}, path, record.Factors{tt.set: "1500"}, 1500)
		blamed := tt.want != ""
		hinted := check.HintOf(got) != ""
		if got.Error() != err.Error()+tt.want || hinted != blamed || (mtu == 600) != blamed {
			t.Errorf("%+v: got %d, %v, hint %q", tt, mtu, got, check.HintOf(got))
		}
	}
}
