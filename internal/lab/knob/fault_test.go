package knob

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/factor"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// TestFaultsJoin: what faults make of a node's knobs, those of one knob joined.
func TestFaultsJoin(t *testing.T) {
	for text, want := range map[State][]setting{
		"link_rate=40G":                  {{Knob: "queue", State: "tbf rate 40G burst 2442k limit 150000000"}},
		"link_rate=50M":                  {{Knob: "queue", State: "tbf rate 50M burst 32k limit 187500"}},
		"link_rate=50M+tiny_queue=2":     {{Knob: "queue", State: "tbf rate 50M burst 4k limit 3028"}},
		"tiny_queue=2":                   {{Knob: "queue", State: "pfifo limit 2"}},
		"reorder=25%":                    {{Knob: "queue", State: "netem limit 10000 delay 5ms reorder 25%"}},
		"loss=1%+delay=2ms":              {{Knob: "queue", State: "netem limit 10000 delay 2ms loss 1%"}},
		"link_rate=9M+loss=1%":           {{Knob: "queue", State: "netem limit 10000 loss 1% rate 9M"}},
		"rules=10+log_flood=on":          {{Knob: "firewall", State: "10 log"}},
		"cpu_hog=2":                      nil,
		"cpu_tightening=40,20":           {{Knob: "cpu_quota", State: "40%"}},
		"slow_reader=20M+send_buffer=8k": nil,
		"backlog=10+budget=8": {{Knob: "sysctl:", State: "net.core.netdev_max_backlog=10"},
			{Knob: "sysctl:", State: "net.core.netdev_budget=8"}},
	} {
		got, err := settingsOf(text)
		for i := range want { // canonical, as the knobs have it
			k, _ := faultPart(want[i].Knob)
			want[i].State, _ = k.Parse(string(want[i].State))
		}

		diff := cmp.Diff(want, got)
		if diff != "" || err != nil {
			t.Errorf("settings of %s: %v (-want +got)\n%s", text, err, diff)
		}
	}
}

// TestFaultSame: what is read back names ports, and must be all that was asked for.
func TestFaultSame(t *testing.T) {
	two := `found [{"knob":"queue","port":"wan","state":"pfifo limit 2"},` +
		`{"knob":"queue","port":"lan","state":"pfifo limit 2"}]`
	for _, tt := range []struct {
		want, got State
		same      bool
	}{
		{"tiny_queue=2", State(two), true}, {"tiny_queue=3", State(two), false}, {"rules=3", State(two), false},
		{"tiny_queue=2", "none", false}, {"cpu_hog=2", "none", true},
		{"tiny_queue=2", State(strings.Replace(two, "limit 2", "limit 9", 1)), false},
	} {
		same := FaultPlant().Same(tt.want, tt.got)
		if same != tt.same {
			t.Errorf("Same(%s, %s) is %v, want %v", tt.want, tt.got, same, tt.same)
		}
	}
}

// TestFaultCompanions: a process for each core that is used up, none for what was there before.
func TestFaultCompanions(t *testing.T) {
	of := FaultPlant().(Accompanied)
	for text, want := range map[State]int{"none": 0, "loss=1%": 0, "loss=1%+cpu_hog=3": 3, "found []": 0,
		"cpu_tightening=40,20": 1} {
		got := of.Companions(Place{}, text)
		if len(got) != want {
			t.Errorf("companions of %s: got %v, want %d", text, got, want)
		}
	}
}

// TestFaultStaysOffTheMachine: of the machine that carries the lab only CPU time is taken, whatever a plan or
// a journal says.
func TestFaultStaysOffTheMachine(t *testing.T) {
	k := FaultPlant()
	machine := Place{Node: factor.Host, Lab: "/nowhere"}
	for _, text := range []State{"loss=1%", "rules=5", "budget=8"} {
		if err := k.(Limited).Allowed(machine, text); err == nil {
			t.Errorf("fault %s on %s: got nil, want an error", text, machine.Node)
		}
	}

	found := State(`found [{"knob":"queue","port":"lo","state":"pfifo limit 2"}]`)
	if err := k.Apply(t.Context(), machine, found); err == nil {
		t.Errorf("queue on %s: got nil, want an error", machine.Node)
	}

	if err := k.(Limited).Allowed(Place{Node: "router"}, "cpu_quota=20%"); err == nil {
		t.Error("cpu_quota on a router: got nil, want an error")
	}
}

func TestFaultRefuses(t *testing.T) {
	shape := factor.Shape{
		Name:    "forward",
		Near:    "client",
		Far:     "server",
		Routers: []string{"router"},
		Nodes:   []factor.Node{{Name: "client"}, {Name: "router", Router: true}, {Name: "server"}},
		Links: []factor.Link{{
			Name: "lan",
			Ends: [2]factor.Port{{Node: "client", Port: "lan"},
				{Node: "router", Port: "lan"}},
		}, {
			Name: "wan",
			Ends: [2]factor.Port{{Node: "router", Port: "wan"},
				{Node: "server", Port: "wan"}},
		}},
	}
	base := factor.Cell{"protocol": "tcp", "engine": factor.Native, "offload": "wire"}
	for _, tt := range []struct{ name, level, beside, value, says string }{
		{"fault", "loss=1%", "", "", ""},
		{"fault", "loss=1%", "offload", "super", "wire"},
		{"fault", "loss=1%", "queue@router.wan", "noqueue", "the cell does"},
		{"fault@router.lan", "loss=1%", "queue@router.wan", "noqueue", ""},
		{"fault@router.lan", "link_rate=1M", "fault@router", "loss=1%", "both set queue"},
		{"fault@router.lan", "link_rate=1M", "fault@router.wan", "loss=1%", ""},
		{"fault@client", "rules=5", "", "", "nothing is forwarded"},
		{"fault@router.lan", "rules=5", "", "", "whole node"},
		{"fault@router", "slow_reader=1M", "", "", "load generator"},
		{"fault@server", "slow_reader=1M", "", "", ""},
		{"fault", "slow_reader=1M", "protocol", "udp", "only TCP"},
		{"fault", "cpu_quota=5%", "", "", "fault@host"},
		{"fault@host", "cpu_quota=5%", "", "", ""},
		{"fault@router", "tunnel_mtu=1500", "", "", "no place"},
		{"fault", "tunnel_queue=2", "tunnel", "wireguard-kernel", "in userspace"},
		{"fault", "tunnel_queue=2", "tunnel", "wireguard-userspace", ""},
	} {
		cell := factor.Cell{}
		for k, v := range base {
			cell[k] = v
		}

		if cell[tt.name] = tt.level; tt.beside != "" {
			cell[tt.beside] = tt.value
		}

		got := FaultPlant().Factor().Refuses(shape, cell)
		if !strings.Contains(got, tt.says) || (got == "") != (tt.says == "") {
			t.Errorf("%s=%s beside %s=%s: got %q, want %q", tt.name, tt.level, tt.beside, tt.value, got,
				tt.says)
		}
	}
}

func TestFaultsOfTheLoad(t *testing.T) {
	got, err := FaultLimits("slow_reader=20M+slow_writer=10M+receive_buffer=16k+send_buffer=8k+loss=1%")
	want := record.EndLimits{ReadRateBps: 20e6, WriteRateBps: 10e6, ReceiveBuffer: 16384, SendBuffer: 8192}
	if err != nil || got != want {
		t.Errorf("limits: got %+v, %v, want %+v", got, err, want)
	}

	path := FaultyPath{TunnelMTU: 1500, TunnelQueue: 3, Hole: 1300, Bypass: true}
	if got := PathFaults("tunnel_mtu=1500+tunnel_queue=3+pmtu_hole=1300+bypass=on+loss=1%"); got != path {
		t.Errorf("path: got %+v, want %+v", got, path)
	}

	if rest := nodeFaults("slow_reader=20M+loss=1%"); rest != "loss=1%" {
		t.Errorf("what is left to the node: got %q, want loss=1%%", rest)
	}

	if rest := nodeFaults("slow_reader=20M"); rest != "" {
		t.Errorf("what is left to the node: got %q, want nothing", rest)
	}
}
