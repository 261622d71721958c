package record

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPathDropsTrafficOnly(t *testing.T) {
	cell := Factors{
		"topology": "forward", "tunnel": "wireguard", "mtu": "1420", "ip": "4", "nat": "off",
		"queue@router.wan": "pfifo", "streams": "4", "direction": "up", "protocol": "udp",
		"packet_size": "64", "frame_size": "82", "rate": "flat", "congestion": "cubic", "engine": "native",
	}
	before := cell.Clone()
	want := Factors{
		"topology": "forward", "tunnel": "wireguard", "mtu": "1420", "ip": "4", "nat": "off",
		"queue@router.wan": "pfifo",
	}
	design := Design{Procedure: Procedure{
		Loads: []string{"streams", "direction", "protocol", "packet_size", "frame_size", "rate",
			"congestion", "engine"},
	}}
	if diff := cmp.Diff(want, design.Path(cell)); diff != "" {
		t.Errorf("Path() (-want +got):\n%s", diff)
	}

	if diff := cmp.Diff(before, cell); diff != "" {
		t.Errorf("Path() changed its cell (-want +got):\n%s", diff)
	}

	d := Design{Procedure: Procedure{Loads: []string{"streams"}}}
	got := d.Path(Factors{"streams": "4", "direction": "up"})
	if got.Key() != "direction=up" {
		t.Errorf("path by a design's own list: got %s, want direction=up", got.Key())
	}
}
