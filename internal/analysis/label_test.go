package analysis

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

func TestLabels(t *testing.T) {
	tests := []struct {
		name  string
		cells []record.Factors
		want  []string
	}{
		{"one cell", []record.Factors{quickFactors()}, []string{"no tunnel · TCP · IPv4 · 1 stream · up"}},
		{"streams", []record.Factors{quickFactors(), quickFactors("streams", "4")},
			[]string{"1 stream", "4 streams"}},
		{"the tunnel's MTU is no news", []record.Factors{quickFactors(), quickFactors("tunnel", "wireguard")},
			[]string{"no tunnel", "wireguard"}},
		{"unless it varies", []record.Factors{quickFactors("tunnel", "wireguard"), quickFactors("tunnel",
			"wireguard", "mtu", "1280")}, []string{"mtu 1420", "mtu 1280"}},
		{"packet size", []record.Factors{quickFactors(), quickFactors("protocol", "udp")},
			[]string{"TCP", "UDP · 64 B"}},
		{"packets of several sizes", []record.Factors{quickFactors("protocol", "udp"),
			quickFactors("protocol", "udp", "frame_size", "imix", "packet_size", "imix")},
			[]string{"64 B", "IMIX"}},
		{"default and named queue", []record.Factors{quickFactors(), quickFactors("queue", "tbf rate 1M")},
			[]string{"no tunnel · TCP · IPv4 · 1 stream · up", "queue tbf rate 1M"}},
		{"nat", []record.Factors{quickFactors(), quickFactors("nat", "masquerade", "streams", "4")},
			[]string{"1 stream", "4 streams · masquerade"}},
		{"a cell without factors", []record.Factors{{}}, []string{"no factors"}},
		{"beside one that has some", []record.Factors{{}, {"streams": "4"}}, []string{"no factors",
			"4 streams"}},
		{"levels of white space", []record.Factors{{"tunnel": " "}}, []string{"no factors"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			diff := cmp.Diff(test.want, Labels(declaredFactors(), test.cells))
			if diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}
